//! Plots of a training step: a page for a browser, its chart alone, a timeline for Perfetto.
//!
//! They show events in their order. How long each event took is not known, so no plot shows a time.

pub mod chart;
mod html;
mod trace;

use std::ops::Range;

use estimator::analysis::History;
use estimator::record::Recording;
use estimator::{Analysis, Simulated};
use model_zoo::Variant;

use crate::cli;
use crate::output::file::{self, File};
use crate::output::job_lines::headline;
use crate::output::terminal::plain;
use crate::report::EstimateReport;
use crate::user_error::{UserError, printable};

/// A step to draw.
#[derive(Debug)]
pub struct Plot<'a> {
    /// The answer about it.
    pub report: &'a EstimateReport,
    /// The published network, if there is one.
    pub published: Option<&'a Variant>,
    /// The recorded calls.
    pub recording: &'a Recording,
    /// How the memory in use changed.
    pub history: History,
    /// The position of the event at the peak of memory; none if nothing happened.
    pub peak: Option<usize>,
}

impl<'a> Plot<'a> {
    /// The plot of the run that `report` is about.
    pub fn new(
        report: &'a EstimateReport,
        published: Option<&'a Variant>,
        simulated: &'a Simulated,
    ) -> Self {
        let recording = &simulated.recording;
        let analysis = Analysis::of(recording);
        let peak = analysis.timeline.peak(recording);
        Self {
            report,
            published,
            recording,
            history: analysis.history(recording),
            peak: peak.map(|peak| peak.position),
        }
    }

    /// The title: `resnet-50 in burn 0.22.1: batch 32, 224x224 px, fp32, adam`. A name can come from a file and hold any
    /// character, and neither XML nor JSON allows all of them.
    pub fn title(&self) -> String {
        printable(&plain(&headline(&self.report.asked)))
    }

    /// The events of the step with the peak.
    pub fn step(&self) -> Range<usize> {
        self.history.step_around(self.peak.unwrap_or_default())
    }
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
            .try_for_each(|(file, draw)| file.save(&draw(plot)))
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
