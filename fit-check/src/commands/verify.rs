//! Runs the step on a device of this machine, or a PyTorch program on its GPU, and compares the estimate with it.

mod device;
mod fit;
mod limit;
mod program;

use std::path::PathBuf;
use std::time::Duration;

use estimator::{Bytes, DeviceSpec, Runtime, Tuning};
use model_zoo::{Job, Request, Strategy};
use strum::VariantNames;

use crate::cli;
use crate::exit_status::{FITS, UNKNOWN};
use crate::interrupt;
use crate::job_info::JobInfo;
use crate::measure::{self, DeviceKind, Mark, Measurement, Mode, Opened, Setup, Training};
use crate::model_source::{self, AnyModel, WeightsCheck};
use crate::output;
use crate::progress::Progress;
use crate::records;
use crate::resolve::{self, Batch};
use crate::step::STEPS;
use crate::user_error::UserError;
use crate::values;

/// Runs the command.
pub fn run(raw: &cli::Verify) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    let timeout = values::seconds("--timeout", &raw.timeout)?;
    if raw.list {
        let found = measure::list(timeout)?;
        output::write(&found, &raw.output)?;
        return Ok(if found.is_empty() { UNKNOWN } else { FITS });
    }
    if !raw.command.is_empty() {
        return program::run(raw, timeout);
    }
    // All arguments are checked before a device is opened.
    let tolerance = fit::percent(&raw.tolerance)?;
    let record = raw.record.as_ref().map(|file| match file {
        Some(file) => file.clone(),
        None if raw.max_batch => records::LARGEST_BATCHES.into(),
        None => records::RECORDS.into(),
    });
    record.as_deref().map(records::check).transpose()?;
    let budget = device::budget(raw)?;
    interrupt::watch(Duration::ZERO)?;
    let proof = Verification::new(raw, budget, record, timeout)?;
    match raw.max_batch {
        true => limit::run(&proof, budget, raw),
        false => fit::run(&proof, tolerance, raw),
    }
}

/// A job to verify on a device.
struct Verification {
    model: AnyModel,
    /// How its weights file agrees with its network.
    weights: Option<WeightsCheck>,
    job: Job,
    setup: Setup,
    opened: Opened,
    /// Whether the process tunes its kernels in a run before the measured one.
    tuning: Tuning,
    /// The file to which the outcome is appended.
    record: Option<PathBuf>,
    progress: Progress,
}

/// The note before a step is tuned on a software device: resnet-20 took more than 400 s on two cores, and 5 s
/// in a build that does not tune.
const SLOW_TUNING: &str = "note: burn's tuner runs every candidate of every kernel, which takes minutes where the \
processor plays the GPU; a build with `--no-default-features` does not tune and takes seconds";

/// The note if NVML is missing or does not know the GPU, for instance a part of one (MIG): it has no such device, and
/// none of the name that CUDA reports.
const NO_DEVICE_FIGURES: &str = "note: NVIDIA's management library (NVML) does not know this device, so the memory in \
use on the whole device is not in this answer";

impl Verification {
    fn new(
        raw: &cli::Verify,
        budget: Option<Bytes>,
        record: Option<PathBuf>,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let device = raw.device.parse()?;
        let tuning = values::choice("--tuning", &raw.tuning, Tuning::VARIANTS)?;
        let driver = device::driver(raw, device, budget)?;
        let Some(model) = &raw.model else {
            return Err(UserError::new("verify needs a model")
                .hint("`fit-check models` lists them; `fit-check verify --list` lists the devices")
                .into());
        };
        let batch = match raw.max_batch {
            true => Batch::default(),
            false => Batch {
                samples: raw.batch.as_deref(),
                tokens: None,
            },
        };
        let (model, origin) = model_source::find(model, raw.hub.offline)?;
        let job = resolve::job(&model, &raw.step, batch)?;
        if matches!(job.strategy, Strategy::Ddp(_)) {
            return Err(UserError::new("verify trains on one device")
                .hint("leave --strategy ddp out; docs/several_gpus.md says how that estimate is proved")
                .into());
        }
        let weights = model_source::compare(&model, &origin, &job)?;
        if record.is_some() {
            records::check_job(&job)?;
        }
        let progress = Progress::new(raw.output.quiet, 3 + 2 * phases(&job));
        progress.at(&format!("opening the device for --device {device}"));
        let (setup, opened) = driver.open(device, budget, timeout)?;
        if cfg!(feature = "autotune")
            && opened.report.kind == DeviceKind::Software
            && !raw.output.quiet
        {
            progress.note(SLOW_TUNING);
        }
        let runtime = device.driven.runtime();
        if runtime == Runtime::Cuda
            && opened.report.kind == DeviceKind::Gpu
            && opened.free.is_none()
            && !raw.output.quiet
        {
            progress.note(NO_DEVICE_FIGURES);
        }
        Ok(Self {
            setup,
            opened,
            model,
            weights,
            job,
            tuning,
            record,
            progress,
        })
    }

    fn runtime(&self) -> Runtime {
        self.setup.device.driven.runtime()
    }

    /// A simulated card like the device, with as much free memory.
    fn device(&self) -> DeviceSpec {
        let description = &self.opened.description;
        let device = description.spec(self.runtime()).with_tuning(self.tuning);
        match (device.card.total, self.opened.free) {
            (Some(total), Some(free)) => device.with_memory(total, total.saturating_sub(free)),
            _ => device,
        }
    }

    /// The description of the job, with its batch or without.
    fn asked(&self, batch: Option<usize>) -> JobInfo {
        JobInfo {
            weights: self.weights.clone(),
            ..JobInfo::of(
                &self.model,
                &self.job,
                self.runtime(),
                Some(self.tuning),
                batch,
            )
        }
    }

    /// Trains a batch on the device. `limit` is the most host memory that the process may take.
    fn train(
        &self,
        batch: u64,
        mode: Mode,
        sampled: bool,
        limit: Option<estimator::Bytes>,
    ) -> anyhow::Result<Measurement> {
        let training = Training {
            model: self.model.text(),
            request: Request {
                batch: Some(batch as usize),
                ..self.job.request()
            },
            mode,
            sampled,
            limit,
            tuning: self.tuning,
            fused: true,
        };
        let mut on_mark = |mark: &Mark| {
            self.progress.at(&format!(
                "batch {batch}, {mode} on {}: step {}, {} phase done",
                self.opened.report.name,
                mark.step + 1,
                mark.phase
            ));
        };
        self.setup.measure(training, &mut on_mark)
    }
}

/// The number of phases of a job whose step trains one network.
fn phases(job: &Job) -> u64 {
    (1 + STEPS * (1 + 3 * job.accumulate)) as u64
}
