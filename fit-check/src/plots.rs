//! Plots of a training step: a page for a browser, its chart alone, a timeline for Perfetto; and of a table, the curve of its
//! batches.
//!
//! Those of a step show events in their order. How long each event took is not known, so no plot shows a time.

pub mod chart;
pub mod curve;
mod html;
mod trace;

use std::ops::Range;

use estimator::{Analysis, Breakdown, Bytes, LayerMemory, Simulated};
use model_zoo::Variant;
use recording::Layer;
use recording::analysis::History;
use serde_json::{Value, json};

use crate::cli;
use crate::output::estimate::{Figure, figures};
use crate::output::file::{self, File};
use crate::output::job_lines::{burn, headline};
use crate::output::terminal::plain;
use crate::output::weights_check;
use crate::report::{EstimateReport, Verdict};
use crate::user_error::{UserError, printable};

/// A step to draw.
#[derive(Debug)]
pub struct Plot<'a> {
    /// The title: `resnet-50, batch 32, 224x224 px, fp32, adam`. It has no character that XML or JSON refuse.
    pub title: String,
    /// Whether it fits on each card.
    pub verdicts: &'a [Verdict],
    /// The figures of the answer.
    pub figures: Vec<Figure>,
    /// The bytes in use at the peak.
    pub peak_bytes: Bytes,
    /// When the peak is: phase, layer, kernel.
    pub peak_words: Vec<String>,
    /// What is in use at the peak.
    pub at_peak: Breakdown,
    /// The layers of the answer.
    pub layers: &'a [LayerMemory],
    /// Whether these are the layers of the step without fusion, although burn fuses.
    pub layers_unfused: bool,
    /// What the answer is about, and what it assumes: headings and lines.
    pub assumptions: Vec<(&'static str, Vec<String>)>,
    /// How the answer was found.
    pub method: &'static str,
    /// The layers, by the number that the history has.
    pub layer_names: &'a [Layer],
    /// How the memory in use changed.
    pub history: History,
    /// The position of the event at the peak of memory; none if nothing happened.
    pub peak: Option<usize>,
    /// The job, as the JSON of the answer has it.
    pub asked_json: Value,
    /// The peak, as the JSON of the answer has it.
    pub peak_json: Value,
}

impl<'a> Plot<'a> {
    /// The plot of the run that `report` is about; `published` is its network in the zoo.
    pub fn new(
        report: &'a EstimateReport,
        published: Option<&'a Variant>,
        simulated: &'a Simulated,
    ) -> Self {
        let recording = &simulated.recording;
        let analysis = Analysis::of(recording);
        let position = analysis.timeline.peak(recording);
        let peak = &report.peak;
        let title = title(&headline(&report.asked));
        let mut peak_words = vec![format!(
            "peak {} in the {} phase",
            peak.live_bytes, peak.phase
        )];
        peak_words.extend(peak.layer.iter().map(|layer| format!("layer {layer}")));
        peak_words.extend(peak.kernel.iter().map(|kernel| format!("kernel {kernel}")));
        Self {
            assumptions: assumptions(report, published, &title),
            title,
            verdicts: report.verdicts(),
            figures: figures(report),
            peak_bytes: peak.live_bytes,
            peak_words,
            at_peak: report.at_peak,
            layers: &report.layers,
            layers_unfused: report.layers_unfused,
            method: "the step was run on a simulated card, not computed from formulas",
            layer_names: &recording.layers,
            history: analysis.history(recording),
            peak: position.map(|position| position.position),
            asked_json: json!(report.asked),
            peak_json: json!(peak),
        }
    }

    /// The events of the step with the peak.
    pub fn step(&self) -> Range<usize> {
        self.history.step_around(self.peak.unwrap_or_default())
    }
}

/// `headline` as a title. A name can come from a file and hold any character, and neither XML nor JSON allows all of
/// them.
pub(crate) fn title(headline: &str) -> String {
    printable(&plain(headline))
}

fn assumptions(
    report: &EstimateReport,
    published: Option<&Variant>,
    title: &str,
) -> Vec<(&'static str, Vec<String>)> {
    let asked = &report.asked;
    let mut lines = vec![
        ("Job", vec![title.to_string()]),
        ("Burn", vec![burn(asked)]),
        ("Card", cards(report.verdicts())),
    ];
    if let Some(weights) = &asked.weights {
        let check = weights_check::lines(weights);
        lines.push(("Weights", vec![check.trim().to_string()]));
    }
    if let Some(published) = published {
        lines.push(("Published recipe", vec![published.recipe.to_string()]));
        if !published.differences.is_empty() {
            let differences = published.differences.iter().map(ToString::to_string);
            lines.push((
                "Differences from the reference implementation",
                differences.collect(),
            ));
        }
    }
    lines
}

/// A line about each card.
pub(crate) fn cards(verdicts: &[Verdict]) -> Vec<String> {
    if verdicts.is_empty() {
        return vec!["none was named: simulated with as much memory as is asked for".to_string()];
    }
    let gpus = verdicts.iter().map(|verdict| &verdict.gpu);
    let lines = gpus.map(|gpu| {
        format!(
            "{}: {} usable, {} of them for the process",
            gpu.name, gpu.usable_bytes, gpu.overhead_bytes
        )
    });
    lines.collect()
}

/// Draws a step, as the text of a file.
type Draw = fn(&Plot) -> String;

impl cli::PlotFiles {
    /// Whether any file was named.
    pub fn any(&self) -> bool {
        self.files().next().is_some()
    }

    /// Checks that the files can be written, before any work is done for them.
    ///
    /// # Errors
    ///
    /// A file cannot be written, or two options name the same file.
    pub fn check(&self, output: &cli::Output) -> Result<(), UserError> {
        let answer = output.output.as_deref().map(|path| ("--output", path));
        self.files().try_for_each(|(file, _)| file.check())?;
        let files = self.files().map(|(file, _)| (file.option, file.path));
        file::check_apart(answer.into_iter().chain(files))
    }

    /// Draws `plot` into every file that was named.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn write(&self, plot: &Plot) -> anyhow::Result<()> {
        self.files()
            .try_for_each(|(file, draw)| file.save(draw(plot)))
    }

    fn files(&self) -> impl Iterator<Item = (File<'_>, Draw)> {
        let all: [(_, _, Draw); 3] = [
            (&self.html, "--html", html::render),
            (&self.svg, "--svg", chart::render),
            (&self.trace, "--trace", trace::render),
        ];
        all.into_iter().filter_map(|(path, option, draw)| {
            let file = File {
                path: path.as_deref()?,
                option,
                otherwise: "leave it out",
            };
            Some((file, draw))
        })
    }
}
