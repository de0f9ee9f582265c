//! The catalogue of cards: marketed and usable memory, provenance.

use estimator::Gpu;
use serde::Serialize;
use strum::VariantNames;

use crate::cache::{Answer, Cache, Question, StepKey};
use crate::cli;
use crate::commands::torch;
use crate::exit_status::{DOES_NOT_FIT, FITS, UNKNOWN};
use crate::gpu_search::{FitsReport, fitting_gpus};
use crate::job_info::JobInfo;
use crate::model_source;
use crate::output::{self, Rendered, terminal};
use crate::progress::Progress;
use crate::report::GpuReport;
use crate::resolve::{self, Batch};
use crate::several_gpus::{self, GpuGroup};
use crate::values;

/// Runs the command.
pub fn run(raw: &cli::Gpus) -> anyhow::Result<u8> {
    if let Some(model) = &raw.fits {
        return fits(raw, model);
    }
    let cards: Vec<GpuReport> = match &raw.card {
        Some(name) => vec![GpuReport::from(resolve::gpu(name)?)],
        None => Gpu::all().iter().map(GpuReport::from).collect(),
    };
    output::check(&raw.output)?;
    output::write(&cards, &raw.output)?;
    Ok(FITS)
}

/// The cards on which a training step fits.
fn fits(raw: &cli::Gpus, name: &str) -> anyhow::Result<u8> {
    if torch::is_asked(
        &[name],
        &raw.framework,
        &raw.torch,
        &raw.step.options,
        &raw.runtime,
    )? {
        return torch::gpus(raw, name);
    }
    let (model, origin) = model_source::find(name, raw.hub.offline)?;
    let batch = Batch::typed(&raw.batch, &raw.tokens);
    let job = resolve::job(&model, &raw.step, batch)?;
    let weights = model_source::compare(&model, &origin, &job)?;
    let runtime = values::choice("--runtime", &raw.runtime, estimator::Runtime::VARIANTS)?;
    let nccl = raw.step.options.nccl.as_deref();
    let group = several_gpus::group_of(job.strategy, raw.count.as_deref(), nccl, runtime)?;
    output::check(&raw.output)?;
    let options = Options {
        group,
        columns: terminal::width(),
    };
    let cache = Cache::about(&model, &raw.caching);
    let step = StepKey::new(&model, &job, runtime, None);
    let question = Question::new("gpus", options, vec![step], &[]);
    cache.answer(&question, &raw.output, || {
        let progress = Progress::new(raw.output.quiet, 1);
        progress.at(&format!("training {name} on cards of every kind"));
        let found = fitting_gpus(&model, &job, runtime, group);
        progress.done();
        let report = FitsReport {
            asked: JobInfo {
                weights,
                ..JobInfo::of(&model, &job, runtime, None, Some(job.batch))
            },
            cards: found.cards,
            nearest: found.nearest,
            undetermined: found.undetermined,
        };
        let rendered = Rendered::report(&report);
        rendered.write(&raw.output)?;
        let status = match (report.cards.is_empty(), report.undetermined.is_empty()) {
            (false, _) => FITS,
            (true, true) => DOES_NOT_FIT,
            (true, false) => UNKNOWN,
        };
        Ok(Answer { rendered, status })
    })
}

/// The options that change the answer about a job. The key of the cache has all of them; the catalogue is that of the build.
#[derive(Clone, Copy, Debug, Serialize)]
struct Options {
    group: Option<GpuGroup>,
    /// The page is wrapped to it.
    columns: usize,
}
