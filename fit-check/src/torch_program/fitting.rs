//! The cards of the catalogue on which a training step in PyTorch fits.

use std::rc::Rc;

use estimator::{Bytes, Gpu, Runtime, Tuning};
use schemars::JsonSchema;
use serde::Serialize;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::replay::{Replay, least_capacity};
use torch_memory::trace::Trace;

use super::job::TorchJob;
use super::report::{Torch, verdict};
use super::versions::runs_on;
use crate::gpu_search::{FittingGpu, NearestGpu};
use crate::resolve::Card;

/// The answer of `gpus --fits` with `--framework pytorch`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TorchFitsReport {
    /// Version of this interface.
    pub schema: u32,
    /// The training step.
    pub job: TorchJob,
    /// The versions that decide the answer.
    pub torch: Torch,
    /// The cards with whose kernels the step was recorded beforehand: a card has those of the nearest.
    pub recorded_on: String,
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

/// A step with the kernels of some generation of cards.
#[derive(Debug)]
pub struct RecordedStep {
    /// What it does.
    pub trace: Trace,
    /// The least memory with which it completes.
    pub required: Bytes,
}

impl RecordedStep {
    /// The step of `trace`.
    pub fn new(trace: Trace, config: &AllocatorConfig) -> Self {
        Self {
            required: Bytes(least_capacity(&trace, config)),
            trace,
        }
    }
}

/// The cards on which a step fits, of which `on` is the one on a card; if there are none, the one that comes nearest.
///
/// # Errors
///
/// Those of `on`.
pub fn fitting_cards<E>(
    mut on: impl FnMut(&Card) -> Result<Rc<RecordedStep>, E>,
    config: &AllocatorConfig,
    torch: &Torch,
) -> Result<(Vec<FittingGpu>, Option<NearestGpu>), E> {
    let mut fitting = Vec::new();
    let mut nearest: Option<NearestGpu> = None;
    for (gpu, card) in driven_cards(torch.cuda.as_deref()) {
        let step = on(&card)?;
        let (trace, required) = (&step.trace, step.required);
        let refused = Replay::of(trace, config, card.available().0).refused;
        let verdict = verdict(&card, required, trace, refused.as_ref());
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
    Ok((fitting, nearest))
}
