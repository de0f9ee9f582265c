//! The cards of the catalogue on which a training step in PyTorch fits.

use estimator::{Bytes, Gpu, Runtime, Tuning};
use schemars::JsonSchema;
use serde::Serialize;
use torch_memory::replay::Replay;

use super::job::TorchJob;
use super::report::{Torch, verdict};
use super::source::Step;
use super::versions::runs_on;
use crate::gpu_search::{FittingGpu, NearestGpu};
use crate::resolve::Card;

/// The answer of `gpus --fits` with `--framework pytorch`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TorchFitsReport {
    /// Version of this interface.
    pub schema: u32,
    /// The program and its arguments, with `{batch}`, or the name of a network.
    pub program: String,
    /// Samples in a batch.
    pub batch: u64,
    /// The training step, if the options of the command say all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<TorchJob>,
    /// The versions that decide the answer.
    pub torch: Torch,
    /// The cards with whose kernels the step was recorded: a card has those of the nearest.
    pub recorded_on: String,
    /// The batches at which it was recorded beforehand; the one after each was recorded too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recorded_batches: Vec<u64>,
    /// The least memory with which the step completes, with the kernels of most cards.
    pub required_bytes: Bytes,
    /// The cards on which it fits, the least usable memory first.
    pub cards: Vec<FittingGpu>,
    /// The card that comes nearest, if the step fits on none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearestGpu>,
}

/// The NVIDIA cards that PyTorch runs on in a build for this version of CUDA, the least usable memory first.
pub fn driven_cards(cuda: Option<&str>) -> Vec<(&'static Gpu, Card)> {
    let gpus = Gpu::all()
        .iter()
        .filter(|gpu| gpu.is_driven_by(Runtime::Cuda) && runs_on(cuda, gpu));
    let mut cards: Vec<_> = gpus
        .map(|gpu| (gpu, Card::of(gpu, Runtime::Cuda, Tuning::Cold)))
        .collect();
    cards.sort_by_key(|(_, card)| card.usable());
    cards
}

/// The card that PyTorch runs on and that is sold with the memory of `class`, `24GB` for instance: the one with the least usable memory.
pub fn driven_class(class: &str) -> Option<(&'static Gpu, Card)> {
    let gb: f64 = class.strip_suffix("GB")?.parse().ok()?;
    // The builds of PyTorch for CUDA 13, the newest, are the ones with the fewest cards.
    let mut driven = driven_cards(Some("13")).into_iter();
    driven.find(|(gpu, _)| gpu.marketed_gb == gb)
}

/// The cards of those in `driven` on which a step fits that is `on` each; if there are none, the one that comes nearest.
pub fn fitting_cards<'a>(
    driven: &[(&'static Gpu, Card)],
    on: impl Fn(&Card) -> &'a Step,
) -> (Vec<FittingGpu>, Option<NearestGpu>) {
    let mut fitting = Vec::new();
    let mut nearest: Option<NearestGpu> = None;
    for (gpu, card) in driven {
        let step = on(card);
        let (trace, required) = (&step.recording.trace, step.required());
        let refused = Replay::of(trace, &step.config, card.available().0).refused;
        let verdict = verdict(card, required, trace, refused.as_ref());
        match verdict.fits {
            true => fitting.push(FittingGpu {
                alias: gpu.alias(),
                marketed_gb: gpu.marketed_gb,
                launch_price_usd: gpu.launch_price_usd,
                launch_year: gpu.launch_year,
                required_bytes: required,
                headroom_bytes: verdict.headroom_bytes,
                gpu: verdict.gpu,
            }),
            false => {
                let known = nearest.as_ref().map(|known| known.verdict.headroom_bytes);
                if known.is_none_or(|known| known <= verdict.headroom_bytes) {
                    nearest = Some(NearestGpu {
                        alias: gpu.alias(),
                        verdict,
                    });
                }
            }
        }
    }
    let nearest = nearest.filter(|_| fitting.is_empty());
    (fitting, nearest)
}
