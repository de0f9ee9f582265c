//! The activations that a step keeps for its backward pass, beside those that PyTorch keeps.

use std::collections::BTreeMap;

use anyhow::Context;
use estimator::{Analysis, Bytes, Category, DeviceSpec, Phase, Runtime, Simulated, parallel_map};
use model_zoo::{Input, InputSize, Request};
use serde::Deserialize;

use fit_check::input_options::SizeOption;
use fit_check::simulate_step;

/// What PyTorch saves, by job. It was measured for this project on a CPU in fp32 with torch 2.15, torchvision
/// 0.29 and transformers 5.23: forward pass and a scalar loss (cross-entropy unless `why` names another),
/// each distinct storage once, without parameters, with the batch and the 64-bit indices of max-pooling.
/// `why` explains the ratio; it was written after looking at the recordings.
const MEASURED: &str = include_str!("../data/saved_for_backward.csv");

#[derive(Debug, Deserialize)]
struct Row {
    model: String,
    batch: usize,
    image: Option<String>,
    seq: Option<usize>,
    src_seq: Option<usize>,
    classes: Option<usize>,
    vocab: Option<usize>,
    mib: f64,
    why: String,
}

impl Row {
    fn request(&self) -> anyhow::Result<Request> {
        let mut input = Input {
            image: None,
            seq: self.seq,
            src_seq: self.src_seq,
            classes: self.classes,
            vocab: self.vocab,
        };
        if let Some(text) = &self.image {
            let size = InputSize::Image;
            input.set(size, SizeOption::of(size).parse(text)?)?;
        }
        Ok(Request {
            batch: Some(self.batch),
            input,
            ..Request::default()
        })
    }

    fn run(&self, runtime: Runtime) -> anyhow::Result<Kept> {
        let variant = model_zoo::find(&self.model)?;
        let job = self.request()?.resolve(&variant)?;
        model_zoo::check(&variant, &job)?;
        let simulated = simulate_step(&variant, &job, DeviceSpec::unlimited(runtime))?;
        Ok(Kept::of(&simulated))
    }

    fn sample(&self) -> String {
        let image = self.image.as_ref().map(|image| format!("{image} px"));
        let source = self.src_seq.map(|seq| format!("{seq} source tokens"));
        let tokens = self.seq.map(|seq| format!("{seq} tokens"));
        let sizes: Vec<_> = [image, source, tokens].into_iter().flatten().collect();
        sizes.join(", ")
    }
}

/// The memory in use at the end of the forward pass that keeps the most.
#[derive(Debug, Default)]
struct Kept {
    /// Activations and the batch.
    total: Bytes,
    /// Activations by the type of their layer.
    by_kind: BTreeMap<String, Bytes>,
}

impl Kept {
    fn of(simulated: &Simulated) -> Self {
        let recording = &simulated.recording;
        let analysis = Analysis::of(recording);
        let marks = recording.marks.iter().enumerate();
        let forward = marks.filter(|(_, mark)| mark.phase == Phase::Forward);
        let kept = forward.map(|(mark, _)| {
            let mut kept = Self::default();
            for (buffer, category) in analysis.categories.buffers_at(mark) {
                let bytes = recording.buffer(buffer).bytes;
                match category {
                    Category::Inputs => kept.total += bytes,
                    Category::Activations => {
                        let layer = analysis.layer_of.buffer(buffer);
                        let kind = layer
                            .map_or("no layer", |layer| &recording.layers[layer.0 as usize].kind);
                        kept.total += bytes;
                        *kept.by_kind.entry(kind.to_string()).or_default() += bytes;
                    }
                    _ => {}
                }
            }
            kept
        });
        kept.max_by_key(|kept| kept.total).unwrap_or_default()
    }

    /// The three types of layers that keep the most, with their shares of the total.
    fn kinds(&self) -> String {
        let mut kinds: Vec<_> = self.by_kind.iter().collect();
        kinds.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        let share = |bytes: &Bytes| 100.0 * bytes.as_f64() / self.total.as_f64();
        let most = kinds.iter().take(3);
        let most = most.map(|(kind, bytes)| format!("{kind} {:.0} %", share(bytes)));
        most.collect::<Vec<_>>().join(", ")
    }
}

fn mib(bytes: Bytes) -> f64 {
    bytes.as_f64() / Bytes::mib(1).as_f64()
}

/// The table, in Markdown.
pub fn table() -> anyhow::Result<String> {
    let rows: Vec<Row> = csv::Reader::from_reader(MEASURED.as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()
        .context("saved_for_backward.csv")?;
    let lines = parallel_map(&rows, |row| -> anyhow::Result<Vec<String>> {
        let cuda = row.run(Runtime::Cuda)?;
        let unpadded = row.run(Runtime::Wgpu)?;
        Ok(vec![
            row.model.clone(),
            row.batch.to_string(),
            row.sample(),
            format!("{:.1}", row.mib),
            format!("{:.1}", mib(cuda.total)),
            format!("{:.2}", mib(cuda.total) / row.mib),
            format!("{:.2}", mib(unpadded.total) / row.mib),
            cuda.kinds(),
            row.why.clone(),
        ])
    });
    let header = [
        "model",
        "batch",
        "sample",
        "PyTorch MiB",
        "burn MiB",
        "ratio",
        "ratio, rows not padded",
        "kept by",
        "why",
    ];
    crate::fallible_table(header, lines)
}
