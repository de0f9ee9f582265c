//! Pictures of a training step: a page for a browser, its chart alone, a timeline for Perfetto.
//!
//! All of them are drawn in the order in which things happened. How long each took is not known,
//! so nowhere is there a time.

pub mod chart;
mod html;
mod trace;

use std::ops::Range;
use std::path::Path;

use estimator::analysis::History;
use estimator::record::Recording;
use estimator::{Analysis, Simulated};
use model_zoo::Variant;

use crate::cli;
use crate::output::file::File;
use crate::output::job_lines::headline;
use crate::output::terminal::plain;
use crate::report::EstimateReport;
use crate::user_error::{UserError, printable};

/// A step that is to be drawn.
#[derive(Debug)]
pub struct Plot<'a> {
    /// What is answered about it.
    pub report: &'a EstimateReport,
    /// What is published about the network, if anything is.
    pub published: Option<&'a Variant>,
    /// What happened.
    pub recording: &'a Recording,
    /// How the memory in use changed.
    pub history: History,
    /// Where most is in use, among the events; none if nothing happened.
    pub peak: Option<usize>,
}

impl<'a> Plot<'a> {
    /// Of the run that `report` speaks of.
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

    /// What is drawn: `resnet-50, batch 32, 224x224 px, fp32, adam`. A name can come from a file
    /// and hold anything, and neither XML nor JSON holds everything.
    pub fn title(&self) -> String {
        printable(&plain(&headline(&self.report.asked)))
    }

    /// The events of the step with the peak.
    pub fn step(&self) -> Range<usize> {
        self.history.step_around(self.peak.unwrap_or_default())
    }
}

/// How a step is drawn into a file.
type Draw = fn(&Plot) -> String;

impl cli::PlotFiles {
    /// Whether there is any to be made.
    pub fn any(&self) -> bool {
        self.files().next().is_some()
    }

    /// Whether the files could be written, before any work is done for them.
    ///
    /// # Errors
    ///
    /// One could not, or two are the same, or one is that of the answer.
    pub fn check(&self, output: &cli::Output) -> Result<(), UserError> {
        let answer = output.output.as_deref().map(|path| ("--output", path));
        let mut known: Vec<(&str, &Path)> = answer.into_iter().collect();
        for (file, _) in self.files() {
            file.check()?;
            if let Some((other, _)) = known.iter().find(|(_, path)| *path == file.path) {
                let (option, path) = (file.option, file.path.display());
                return Err(
                    UserError::new(format!("{other} and {option} both name {path}"))
                        .hint("give each a file of its own"),
                );
            }
            known.push((file.option, file.path));
        }
        Ok(())
    }

    /// Draws `plot` into every file that was named.
    ///
    /// # Errors
    ///
    /// One cannot be written.
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
