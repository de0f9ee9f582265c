//! The cards of the catalogue on which a training step fits.

use estimator::{Bytes, Gpu, Runtime, Tuning, search_devices};
use model_zoo::{Job, Model};
use schemars::JsonSchema;
use serde::Serialize;

use crate::job_info::{GpuName, JobInfo};
use crate::report::Verdict;
use crate::resolve::Card;
use crate::several_gpus::GpuGroup;
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
    /// The card that comes nearest, if the step fits on none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearestGpu>,
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
    /// The least memory with which the step completes on such a card, as `estimate` says.
    pub required_bytes: Bytes,
    /// The memory that the step leaves free.
    pub headroom_bytes: i64,
}

/// The card that comes nearest to what a step needs, which fits on none.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct NearestGpu {
    /// The name to type for it.
    pub alias: &'static str,
    /// The verdict on it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// A card on which the simulation failed.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Undetermined {
    /// The card.
    pub gpu: GpuName,
    /// The error.
    pub error: String,
}

/// What a search among the cards of the catalogue found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The cards on which the step fits, the least usable memory first.
    pub cards: Vec<FittingGpu>,
    /// The card that comes nearest, if the step fits on none.
    pub nearest: Option<NearestGpu>,
    /// The cards on which the simulation failed.
    pub undetermined: Vec<Undetermined>,
}

/// The cards of the catalogue that `runtime` drives and on which the step of `job` fits, as `estimate` says of each; with a `group`,
/// as many of each as it has.
pub fn fitting_gpus<M: Model + Sync>(
    model: &M,
    job: &Job,
    runtime: Runtime,
    group: Option<GpuGroup>,
) -> Found {
    let driven = Gpu::all().iter().filter(|gpu| gpu.is_driven_by(runtime));
    let gpus: Vec<_> = driven
        .map(|gpu| {
            let card = Card::of(gpu, runtime, Tuning::Warm);
            let cards = match group {
                None => card,
                Some(group) => card.in_group(group),
            };
            (gpu, cards)
        })
        .collect();
    let devices: Vec<_> = gpus.iter().map(|(_, card)| card.device.clone()).collect();
    let program = training_job(model, job).without_first_runs();
    let verdicts = search_devices(&program, job.batch as u64, &devices);
    let mut found = Found::default();
    let mut refused = Vec::new();
    for ((gpu, card), verdict) in gpus.iter().zip(verdicts) {
        match verdict.map(|verdict| Verdict::new(card, &verdict)) {
            Ok(verdict) if verdict.fits => found.cards.push(FittingGpu {
                alias: gpu.alias(),
                marketed_gb: gpu.marketed_gb,
                launch_price_usd: gpu.launch_price_usd,
                launch_year: gpu.launch_year,
                required_bytes: verdict.required_bytes,
                headroom_bytes: verdict.headroom_bytes,
                gpu: verdict.gpu,
            }),
            Ok(verdict) => refused.push(NearestGpu {
                alias: gpu.alias(),
                verdict,
            }),
            Err(error) => found.undetermined.push(Undetermined {
                gpu: GpuName::new(card),
                error: first_line(&error),
            }),
        }
    }
    found.cards.sort_by_key(|fitting| fitting.gpu.usable_bytes);
    if found.cards.is_empty() {
        let nearest = refused.into_iter();
        found.nearest = nearest.max_by_key(|nearest| nearest.verdict.headroom_bytes);
    }
    found
}
