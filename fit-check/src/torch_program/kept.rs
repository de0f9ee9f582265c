//! What PyTorch takes for the same job, beside burn's answer: only of networks that were recorded beforehand.

use estimator::{Bytes, Runtime};
use model_zoo::{Job, Precision, Strategy, Variant};
use schemars::JsonSchema;
use serde::Serialize;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::kept::{self, Kept};
use torch_memory::replay::{Replay, least_capacity};

use super::batches::largest_of_kept;
use super::versions::least_capability;
use crate::resolve::Card;

/// PyTorch's figures for a job.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct TorchFigure {
    /// PyTorch's version.
    pub version: String,
    /// The least memory with which the step completes.
    pub required_bytes: Bytes,
    /// `torch.cuda.max_memory_allocated()`.
    pub allocated_bytes: Bytes,
}

impl TorchFigure {
    /// The figures for `job` of a published network on a card of this compute capability; none if the job is not the recipe, or
    /// was not recorded.
    pub fn of(published: Option<&Variant>, job: &Job, capability: Option<u32>) -> Option<Self> {
        let kept = recorded(published, job, capability)?;
        let trace = kept.scaling.at(job.batch as u64);
        let config = AllocatorConfig::default();
        Some(Self {
            version: kept.process.torch,
            required_bytes: Bytes(least_capacity(&trace, &config)),
            allocated_bytes: Bytes(Replay::of(&trace, &config, u64::MAX).max_allocated_bytes),
        })
    }
}

/// PyTorch's largest batch of a job.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct TorchBatch {
    /// PyTorch's version.
    pub version: String,
    /// Samples in the largest batch; 0 if not even one fits.
    pub max_batch: u64,
}

impl TorchBatch {
    /// The largest batch of `job` on `card`; none as for [`TorchFigure::of`], or if this PyTorch does not run on the card.
    pub fn of(published: Option<&Variant>, job: &Job, card: &Card) -> Option<Self> {
        let capability = card.device.card.compute_capability;
        let kept = recorded(published, job, Some(capability))?;
        let cuda = kept.process.cuda.as_deref();
        if card.device.runtime != Runtime::Cuda || capability < least_capability(cuda) {
            return None;
        }
        Some(Self {
            version: kept.process.torch.clone(),
            max_batch: largest_of_kept(kept, AllocatorConfig::default(), card),
        })
    }
}

/// What was recorded of `job`, if it is the recipe of a published network.
fn recorded(published: Option<&Variant>, job: &Job, capability: Option<u32>) -> Option<Kept> {
    let published = published?;
    let precision = match job.precision {
        Precision::Fp32 => "fp32",
        Precision::Mixed => "mixed",
        _ => return None,
    };
    let recipe = job.optimizer == published.optimizer
        && job.input == published.input
        && job.accumulate == 1
        && !job.checkpointing
        && job.freeze.is_empty()
        && job.lora.is_none()
        && !matches!(job.strategy, Strategy::Ddp(_));
    match recipe {
        true => kept::find(published.name, precision, capability).ok()?,
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use torch_memory::trace::Role;

    use super::*;

    /// Public packages define the network that the zoo defines.
    #[test]
    fn recorded_networks_have_the_parameters_of_the_zoo() {
        for name in kept::names() {
            let published = model_zoo::find(name).unwrap();
            for precision in kept::PRECISIONS {
                let kept = kept::find(name, precision, None).unwrap().unwrap();
                let blocks = kept.scaling.at(1).blocks.into_iter();
                let parameters = blocks.filter(|block| block.role == Some(Role::Parameter));
                let bytes: u64 = parameters.map(|block| block.bytes).sum();
                assert_eq!(bytes / 4, published.counts.trainable, "{name} {precision}");
            }
        }
    }
}
