//! The cards of the catalogue on which a training step fits.

use estimator::{Bytes, Gpu, Runtime, Tuning, search_devices};
use model_zoo::{Job, Model};
use schemars::JsonSchema;
use serde::Serialize;

use crate::job_info::{GpuName, JobInfo};
use crate::resolve::Card;
use crate::step::training_job;
use crate::user_error::first_line;

/// The answer of `gpus --fits`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FitsReport {
    /// The job.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// The cards on which it fits, the least usable memory first.
    pub cards: Vec<FittingGpu>,
    /// The cards without an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undetermined: Vec<Undetermined>,
}

/// A card on which a step fits.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FittingGpu {
    /// The card.
    pub gpu: GpuName,
    /// The name to type for it.
    pub alias: &'static str,
    /// The memory that it is sold with, in GB.
    pub marketed_gb: f64,
    /// US list price at launch, where the catalogue has it.
    pub launch_price_usd: Option<f64>,
    /// Year of its launch.
    pub launch_year: Option<u32>,
    /// The least memory with which the step completes on such a card.
    pub required_bytes: Bytes,
    /// The memory that the step leaves free; negative if the step fits only since the pools of a small card clean up
    /// earlier.
    pub headroom_bytes: i64,
}

/// A card on which the simulation failed.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Undetermined {
    /// The card.
    pub gpu: GpuName,
    /// The error.
    pub error: String,
}

/// The cards of the catalogue that `runtime` drives and on which the step of `job` fits, as the largest batch has to: with
/// each queue lag that is required ([`estimator::QueueLag::REQUIRED`]). The least usable memory comes first. Also returns
/// the cards on which the simulation failed. burn has tuned its kernels before.
pub fn fitting_gpus<M: Model + Sync>(
    model: &M,
    job: &Job,
    runtime: Runtime,
) -> (Vec<FittingGpu>, Vec<Undetermined>) {
    let driven = Gpu::all().iter().filter(|gpu| gpu.is_driven_by(runtime));
    let gpus: Vec<_> = driven
        .map(|gpu| (gpu, Card::of(gpu, runtime, Tuning::Warm)))
        .collect();
    let devices: Vec<_> = gpus.iter().map(|(_, card)| card.device.clone()).collect();
    let program = training_job(model, job);
    let found = search_devices(&program, job.batch as u64, &devices);
    let mut fitting = Vec::new();
    let mut undetermined = Vec::new();
    for ((gpu, card), found) in gpus.iter().zip(found) {
        match found {
            Ok(fit) if fit.fits && fit.lag_fits != Some(false) => fitting.push(FittingGpu {
                gpu: GpuName::new(card),
                alias: gpu.alias(),
                marketed_gb: gpu.marketed_gb,
                launch_price_usd: gpu.launch_price_usd,
                launch_year: gpu.launch_year,
                required_bytes: fit.required_bytes,
                headroom_bytes: card.available().signed_difference(fit.required_bytes),
            }),
            Ok(_) => {}
            Err(error) => undetermined.push(Undetermined {
                gpu: GpuName::new(card),
                error: first_line(&error),
            }),
        }
    }
    fitting.sort_by_key(|fitting| fitting.gpu.usable_bytes);
    (fitting, undetermined)
}
