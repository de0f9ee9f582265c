//! The answers as pages and as rows.

use std::fmt::Write;

use estimator::{Breakdown, Bytes, Category, Choice, Limit, Provenance};
use model_zoo::BaseFormat;
use strum::IntoEnumIterator;

use super::comparison::lines;
use super::page::{BAD, FAINT, GOOD, TITLE, bar, columns, grouped, indented, styled};
use super::{Report, Sheet};
use crate::advice::Advice;
use crate::report::{
    Asked, CardBatch, EstimateReport, GpuReport, MaxBatchReport, ModelReport, Verdict,
};

/// `resnet-50, batch 32, 3x224x224, fp32, adam`
pub(crate) fn headline(asked: &Asked) -> String {
    let mut parts = vec![styled(TITLE, &asked.model)];
    if let Some(batch) = asked.batch {
        let tokens = asked.tokens.map(|tokens| tokens as u64);
        parts.push(format!("batch {batch}{}", in_tokens(tokens)));
    }
    if asked.accumulate > 1 {
        parts.push(format!("x {} accumulated", asked.accumulate));
    }
    if let Some([height, width]) = asked.input.image {
        parts.push(format!("{height}x{width} px"));
    }
    let sizes = [
        (asked.input.src_seq, "source tokens"),
        (asked.input.seq, "tokens"),
    ];
    for (size, name) in sizes {
        if let Some(size) = size {
            parts.push(format!("{size} {name}"));
        }
    }
    parts.push(asked.precision.to_string());
    parts.push(asked.optimizer.to_string());
    if asked.checkpointing {
        parts.push("checkpointing".into());
    }
    if let Some(lora) = &asked.lora {
        let base = match lora.base {
            BaseFormat::Dense => String::new(),
            base => format!(" over {base} weights"),
        };
        let targets = lora.targets.join(",");
        parts.push(format!("LoRA of rank {} on {targets}{base}", lora.rank));
    }
    if !asked.freeze.is_empty() {
        parts.push(format!("{} frozen", asked.freeze.join(", ")));
    }
    parts.join(", ")
}

/// `text` for what is no terminal.
pub(crate) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// ` (3,136 tokens)` after a batch of samples that are made of tokens.
fn in_tokens(tokens: Option<u64>) -> String {
    let tokens = tokens.map(|tokens| format!(" ({} tokens)", grouped(tokens)));
    tokens.unwrap_or_default()
}

/// `burn 0.22.1 on cuda, fusion off, autotune off`
pub(crate) fn burn(asked: &Asked) -> String {
    format!(
        "burn {} on {}, {}",
        asked.burn.version,
        asked.runtime,
        asked.burn.switches()
    )
}

fn assumptions(asked: &Asked) -> String {
    let burn = format!("{}; one optimizer step after the first", burn(asked));
    match &asked.weights {
        Some(comparison) => format!("{burn}\n{}", lines(comparison)),
        None => burn,
    }
}

fn difference(bytes: i64) -> String {
    estimator::Bytes(bytes.unsigned_abs()).to_string()
}

/// `fits on A10, 3.2 GiB to spare`
pub(crate) fn verdict_line(verdict: &Verdict) -> String {
    let name = &verdict.gpu.name;
    let line = fits_line(verdict, name);
    match verdict.behind_fits {
        Some(false) => format!(
            "{line}\n  {}: where the device's thread is behind the program, the pools take more pages, and it does not fit",
            styled(BAD, "close")
        ),
        _ => line,
    }
}

fn fits_line(verdict: &Verdict, name: &str) -> String {
    match (verdict.fits, &verdict.reason) {
        (true, _) if verdict.first_run_fits == Some(false) => format!(
            "{} on {name}, {} to spare; but the first run, which tunes, {}",
            styled(GOOD, "fits once tuned"),
            difference(verdict.headroom_bytes),
            styled(BAD, "does not")
        ),
        (true, _) => format!(
            "{} on {name}, {} to spare",
            styled(GOOD, "fits"),
            difference(verdict.headroom_bytes)
        ),
        (false, reason) => format!(
            "{} on {name}: {} short{}",
            styled(BAD, "does not fit"),
            difference(verdict.headroom_bytes),
            reason
                .as_ref()
                .map(|why| format!("; {why}"))
                .unwrap_or_default()
        ),
    }
}

fn breakdown(at_peak: &Breakdown) -> String {
    let total = at_peak.total().as_f64().max(1.0);
    let mut lines = String::new();
    for category in Category::iter() {
        let bytes = at_peak[category];
        if bytes.0 == 0 {
            continue;
        }
        let share = bytes.as_f64() / total;
        let _ = writeln!(
            lines,
            "  {:<12} {:>10}  {:>5.1} %  {}",
            category.to_string(),
            bytes.to_string(),
            share * 100.0,
            bar(share, 30)
        );
    }
    lines
}

/// One of the figures that an estimate ends in.
pub(crate) struct Figure {
    /// What it is called.
    pub name: &'static str,
    /// How much it is.
    pub bytes: Bytes,
    /// What it means.
    pub meaning: String,
}

/// The figures of `report`, the one to go by first.
pub(crate) fn figures(report: &EstimateReport) -> Vec<Figure> {
    let peak = &report.peak;
    let figure = |name, bytes, meaning: String| Figure {
        name,
        bytes,
        meaning,
    };
    let mut figures = vec![
        figure(
            "required",
            peak.required_bytes,
            "the least memory with which the step completes".into(),
        ),
        figure(
            "reserved",
            peak.reserved_bytes,
            "held by burn's pools where there is room".into(),
        ),
    ];
    if report.overhead_bytes.0 > 0 {
        let overhead = report.overhead_bytes;
        figures.push(figure(
            "device",
            peak.device_bytes,
            format!("the whole device then: with {overhead} for the process"),
        ));
    }
    let mut live = format!("in use at the peak: {} phase", peak.phase);
    for (what, name) in [("layer", &peak.layer), ("kernel", &peak.kernel)] {
        if let Some(name) = name {
            let _ = write!(live, ", {what} {name}");
        }
    }
    if let Some(first) = &report.first_run {
        figures.push(figure(
            "first run",
            first.reserved_bytes,
            "reserved in the first run, where kernels are tuned, with room for it".into(),
        ));
    }
    figures.push(figure("live", peak.live_bytes, live));
    if let Some(range) = &report.range {
        figures.push(figure(
            "from",
            range.least_bytes,
            format!(
                "to {} in use at the peak, whichever kernels burn's tuner prefers",
                range.most_bytes
            ),
        ));
    }
    figures
}

impl EstimateReport {
    fn layer_sheet(&self) -> Sheet {
        Sheet {
            title: "Layers".into(),
            header: Sheet::header([
                "layer",
                "kind",
                "parameters",
                "activations",
                "gradients",
                "optimizer",
            ]),
            rows: self
                .layers
                .iter()
                .map(|layer| {
                    vec![
                        layer.path.clone(),
                        layer.kind.clone(),
                        layer.parameter_bytes.to_string(),
                        layer.activation_bytes.to_string(),
                        layer.gradient_bytes.to_string(),
                        layer.optimizer_bytes.to_string(),
                    ]
                })
                .collect(),
        }
    }

    /// The page, with the table of layers if `layers`.
    fn full_page(&self, layers: bool) -> String {
        let mut page = format!("{}\n\n", headline(&self.asked));
        let verdicts = self.verdicts();
        for verdict in verdicts {
            let _ = writeln!(page, "  {}", verdict_line(verdict));
        }
        if !verdicts.is_empty() {
            page.push('\n');
        }
        for (index, figure) in figures(self).iter().enumerate() {
            let amount = format!("{:<9} {:>10}", figure.name, figure.bytes.to_string());
            let amount = match index {
                0 => styled(TITLE, amount),
                _ => amount,
            };
            let _ = writeln!(page, "  {amount}  {}", figure.meaning);
        }
        page.push('\n');
        page += &breakdown(&self.at_peak);
        let parameters = &self.parameters;
        let _ = write!(
            page,
            "\n  {} trainable parameters in {} tensors",
            grouped(parameters.trainable),
            parameters.tensors
        );
        if parameters.frozen > 0 {
            let all = parameters.trainable + parameters.frozen;
            let share = 100.0 * parameters.trainable as f64 / all as f64;
            let frozen = grouped(parameters.frozen);
            let _ = write!(page, ", {frozen} frozen ({share:.3} % are trained)");
        }
        if parameters.buffers > 0 {
            let _ = write!(
                page,
                ", {} in running statistics",
                grouped(parameters.buffers)
            );
        }
        let _ = writeln!(page, "\n  {}", styled(FAINT, assumptions(&self.asked)));
        if let Some(kernels) = &self.kernels {
            page.push('\n');
            page += &columns(&kernel_sheet(kernels));
        }
        if layers {
            page.push('\n');
            if self.layers_unfused {
                page +=
                    "  without fusion, since a fused kernel computes several layers at once:\n\n";
            }
            page += &columns(&self.layer_sheet());
        }
        page += &advice(self.advice.as_ref(), self.offers_advice);
        page
    }
}

fn kernel_sheet(kernels: &[Choice]) -> Sheet {
    Sheet {
        title: "Kernels that burn's tuner chose".into(),
        header: Sheet::header(["result", "scratch", "least", "most", "chosen", "operation"]),
        rows: kernels
            .iter()
            .map(|choice| {
                vec![
                    choice.result_bytes.to_string(),
                    choice.scratch_bytes.to_string(),
                    choice.least_scratch_bytes.to_string(),
                    choice.most_scratch_bytes.to_string(),
                    choice.chosen.clone(),
                    choice.operation.clone(),
                ]
            })
            .collect(),
    }
}

/// An estimate with its layers.
pub struct WithLayers<'a>(pub &'a EstimateReport);

impl serde::Serialize for WithLayers<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl Report for WithLayers<'_> {
    fn page(&self) -> String {
        self.0.full_page(true)
    }

    fn sheets(&self) -> Vec<Sheet> {
        let mut sheets = self.0.sheets();
        sheets.push(self.0.layer_sheet());
        sheets
    }
}

impl Report for EstimateReport {
    fn page(&self) -> String {
        self.full_page(false)
    }

    fn sheets(&self) -> Vec<Sheet> {
        let peak = &self.peak;
        let mut header = Sheet::header(["model", "batch", "precision", "optimizer", "runtime"]);
        let mut row = vec![
            self.asked.model.to_string(),
            self.asked
                .batch
                .map(|batch| batch.to_string())
                .unwrap_or_default(),
            self.asked.precision.to_string(),
            self.asked.optimizer.to_string(),
            self.asked.runtime.to_string(),
        ];
        header.extend(Sheet::header([
            "required_bytes",
            "reserved_bytes",
            "device_bytes",
            "live_bytes",
        ]));
        for bytes in [
            peak.required_bytes,
            peak.reserved_bytes,
            peak.device_bytes,
            peak.live_bytes,
        ] {
            row.push(bytes.0.to_string());
        }
        for category in Category::iter() {
            header.push(category_column(category).into());
            row.push(self.at_peak[category].0.to_string());
        }
        if let Some(verdict) = &self.verdict {
            header.extend(Sheet::header(["gpu", "fits", "headroom_bytes"]));
            row.push(verdict.gpu.name.clone());
            row.push(verdict.fits.to_string());
            row.push(verdict.headroom_bytes.to_string());
        }
        let sheet = Sheet {
            title: String::new(),
            header,
            rows: vec![row],
        };
        let advice = self.advice.iter().map(Advice::sheet);
        std::iter::once(sheet).chain(advice).collect()
    }
}

fn category_column(category: Category) -> &'static str {
    match category {
        Category::Parameters => "parameters_bytes",
        Category::Gradients => "gradients_bytes",
        Category::Optimizer => "optimizer_bytes",
        Category::Activations => "activations_bytes",
        Category::Temporaries => "temporaries_bytes",
        Category::Inputs => "inputs_bytes",
        Category::Buffers => "buffers_bytes",
    }
}

fn batch_lines(card: &CardBatch) -> String {
    let mut lines = String::new();
    let answer = match card.max_batch {
        0 if card.next.batch > 1 => {
            styled(BAD, format!("not even {} samples fit", card.next.batch))
        }
        0 => styled(BAD, "not even one sample fits"),
        batch => styled(GOOD, format!("batch {batch}{}", in_tokens(card.max_tokens))),
    };
    let usable = match card.gpu.overhead_bytes.0 {
        0 => String::new(),
        _ => format!(
            "  {}",
            styled(
                FAINT,
                format!(
                    "{} usable, {} for the process",
                    card.gpu.usable_bytes, card.gpu.overhead_bytes
                )
            )
        ),
    };
    let _ = writeln!(lines, "  {answer} on {}{usable}", card.gpu.name);
    if let Some(peak) = &card.at_max {
        let _ = writeln!(
            lines,
            "    batch {:<6} needs {:>10}, {} in use at the peak ({} phase{})",
            card.max_batch,
            peak.required_bytes.to_string(),
            peak.live_bytes,
            peak.phase,
            peak.layer
                .iter()
                .map(|layer| format!(", {layer}"))
                .collect::<String>()
        );
    }
    let _ = writeln!(
        lines,
        "    batch {:<6} needs {:>10}: {}",
        card.next.batch,
        card.next.peak.required_bytes.to_string(),
        match card.limit {
            Limit::DeviceMemory => card.next.refused.clone(),
            Limit::SingleAllocation => format!("{}, it is too large for one", card.next.refused),
        }
    );
    lines
}

/// The end of a page: `advice`, or how to ask for it if that is to be said.
fn advice(advice: Option<&Advice>, offers: bool) -> String {
    match advice {
        Some(advice) => format!("\n{}", advice.page()),
        None if offers => "\n  --advise simulates changes with which it would fit\n".into(),
        None => String::new(),
    }
}

impl Report for MaxBatchReport {
    fn page(&self) -> String {
        let mut page = format!("{}: largest batch\n\n", headline(&self.asked));
        for card in &self.cards {
            page += &batch_lines(card);
            page.push('\n');
        }
        let _ = writeln!(page, "  {}", styled(FAINT, assumptions(&self.asked)));
        let _ = writeln!(
            page,
            "  {}",
            styled(
                FAINT,
                "both batches were run on a simulated card of this size"
            )
        );
        page += &advice(self.advice.as_ref(), self.offers_advice);
        page
    }

    fn sheets(&self) -> Vec<Sheet> {
        let sheet = Sheet {
            title: String::new(),
            header: Sheet::header([
                "model",
                "precision",
                "optimizer",
                "runtime",
                "gpu",
                "usable_bytes",
                "max_batch",
                "required_bytes",
                "live_bytes",
                "next_batch",
                "next_required_bytes",
                "limit",
                "max_tokens",
            ]),
            rows: self
                .cards
                .iter()
                .map(|card| {
                    let at_max = card.at_max.as_ref();
                    vec![
                        self.asked.model.to_string(),
                        self.asked.precision.to_string(),
                        self.asked.optimizer.to_string(),
                        self.asked.runtime.to_string(),
                        card.gpu.name.clone(),
                        card.gpu.usable_bytes.0.to_string(),
                        card.max_batch.to_string(),
                        at_max
                            .map(|at| at.required_bytes.0.to_string())
                            .unwrap_or_default(),
                        at_max
                            .map(|at| at.live_bytes.0.to_string())
                            .unwrap_or_default(),
                        card.next.batch.to_string(),
                        card.next.peak.required_bytes.0.to_string(),
                        match card.limit {
                            Limit::DeviceMemory => "device memory".into(),
                            Limit::SingleAllocation => "single allocation".into(),
                        },
                        card.max_tokens
                            .map(|tokens| tokens.to_string())
                            .unwrap_or_default(),
                    ]
                })
                .collect(),
        };
        let advice = self.advice.iter().map(Advice::sheet);
        std::iter::once(sheet).chain(advice).collect()
    }
}

/// `224x224, 1000 classes`
pub(crate) fn sizes(input: &model_zoo::Input) -> String {
    let image = input
        .image
        .map(|[height, width]| format!("{height}x{width}"));
    let tokens = |size: Option<usize>, name: &str| size.map(|size| format!("{size} {name}"));
    let parts = [
        image,
        tokens(input.src_seq, "source tokens"),
        tokens(input.seq, "tokens"),
        tokens(input.classes, "classes"),
        tokens(input.vocab, "words"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

impl Report for Vec<ModelReport> {
    fn page(&self) -> String {
        if let [model] = self.as_slice() {
            return model.page();
        }
        let mut page = columns(&self.sheets()[0]);
        let hint = "fit-check models NAME shows recipe, sources and differences";
        let _ = writeln!(page, "\n  {}", styled(FAINT, hint));
        let small: Vec<_> = model_zoo::miniatures().iter().map(|m| m.name).collect();
        let small = format!("made small, for `verify`: {}", small.join(", "));
        page += &indented(&small);
        page
    }

    fn sheets(&self) -> Vec<Sheet> {
        vec![Sheet {
            title: String::new(),
            header: Sheet::header([
                "model",
                "family",
                "parameters",
                "sample",
                "batch",
                "optimizer",
            ]),
            rows: self
                .iter()
                .map(|model| {
                    vec![
                        model.name.to_string(),
                        model.family.to_string(),
                        grouped(model.parameters),
                        sizes(&model.input),
                        model.batch.to_string(),
                        model.optimizer.to_string(),
                    ]
                })
                .collect(),
        }]
    }
}

impl ModelReport {
    fn page(&self) -> String {
        let mut page = format!("{} ({})\n\n", styled(TITLE, self.name), self.family);
        let counts = format!(
            "{} trainable in {} tensors, {} in running statistics",
            grouped(self.parameters),
            self.tensors,
            grouped(self.buffers)
        );
        let batch = self.batch.to_string();
        let optimizer = self.optimizer.to_string();
        for (name, value) in [
            ("parameters", counts.as_str()),
            ("sample", &sizes(&self.input)),
            ("batch", &batch),
            ("optimizer", &optimizer),
            ("recipe", self.recipe),
            ("paper", self.paper),
            ("reference", self.reference),
        ] {
            let _ = writeln!(page, "  {name:<11} {value}");
        }
        match self.differences {
            [] => page += "  differences none\n",
            differences => {
                page += "  differences\n";
                for difference in differences {
                    page += &indented(&format!("  - {difference}"));
                }
            }
        }
        page
    }
}

impl Report for Vec<GpuReport> {
    fn page(&self) -> String {
        if let [card] = self.as_slice() {
            return card.page();
        }
        let mut page = columns(&self.sheets()[0]);
        let hint = "usable: what can be allocated, the least that is known; fit-check gpus NAME tells from where";
        let _ = writeln!(page, "\n  {}", styled(FAINT, hint));
        page
    }

    fn sheets(&self) -> Vec<Sheet> {
        vec![Sheet {
            title: String::new(),
            header: Sheet::header([
                "card",
                "type",
                "architecture",
                "sold as",
                "usable",
                "known from",
                "year",
            ]),
            rows: self
                .iter()
                .map(|card| {
                    let gpu = &card.gpu;
                    vec![
                        gpu.name.clone(),
                        gpu.aliases.first().cloned().unwrap_or_default(),
                        gpu.architecture.clone(),
                        format!("{} GB", gpu.marketed_gb),
                        gpu.usable_bytes.to_string(),
                        provenance(gpu.provenance, &gpu.source),
                        gpu.launch_year
                            .map(|year| year.to_string())
                            .unwrap_or_default(),
                    ]
                })
                .collect(),
        }]
    }
}

fn provenance(provenance: Provenance, source: &str) -> String {
    match provenance {
        Provenance::Reported => source.to_string(),
        Provenance::Derived => "derived".into(),
    }
}

impl GpuReport {
    fn page(&self) -> String {
        let gpu = &self.gpu;
        let known = |bytes: Option<estimator::Bytes>| match bytes {
            Some(bytes) => bytes.to_string(),
            None => "not known".into(),
        };
        let mut page = format!(
            "{} ({} {})\n\n",
            styled(TITLE, &gpu.name),
            gpu.vendor,
            gpu.architecture
        );
        let usable = format!(
            "{} ({})",
            gpu.usable_bytes,
            match gpu.provenance {
                Provenance::Reported => format!("the least that was reported: {}", gpu.source),
                Provenance::Derived => "derived: fitted memory less what drivers keep".into(),
            }
        );
        let process = format!(
            "{} typical, {} at most: context and libraries, by the number of multiprocessors",
            self.overhead.typical_bytes, self.overhead.cautious_bytes
        );
        let multiprocessors = gpu
            .multiprocessors
            .map(|n| n.to_string())
            .unwrap_or_default();
        let capability = gpu
            .compute_capability
            .map(|cc| format!("{}.{}", cc / 10, cc % 10))
            .unwrap_or_default();
        let price = gpu
            .launch_price_usd
            .map(|usd| format!("{usd} USD at launch"));
        for (name, value) in [
            ("type", gpu.aliases.join(", ")),
            ("sold as", format!("{} GB", gpu.marketed_gb)),
            ("fitted", known(gpu.physical_bytes)),
            ("usable", usable),
            ("process", process),
            ("SMs", multiprocessors),
            ("compute", capability),
            ("price", price.unwrap_or_default()),
            ("note", gpu.note.clone()),
        ] {
            if !value.is_empty() {
                let _ = writeln!(page, "  {name:<9} {value}");
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use crate::output::page::{bar, grouped};

    #[test]
    fn bars_show_something_for_anything() {
        assert_eq!(bar(0.0, 10), "");
        assert_eq!(bar(0.0001, 10), "▏");
        assert_eq!(bar(0.5, 10), "█████");
        assert_eq!(bar(1.0, 10), "██████████");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(25_557_032), "25,557,032");
    }
}
