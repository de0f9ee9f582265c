//! What is published about a network.

use crate::{Input, OptimizerKind};

/// Exact published counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Elements of all parameters that receive a gradient.
    pub trainable: u64,
    /// Tensors among which those are divided.
    pub tensors: u64,
    /// Elements that are neither trained nor frozen weights: running statistics, and
    /// noise that is drawn once.
    pub buffers: u64,
}

/// One published network: what `fit-check models NAME` shows.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The name by which people ask for it, for instance `resnet-50`.
    pub name: &'static str,
    /// The architecture that it is a member of, for instance `ResNet`.
    pub family: &'static str,
    /// The file of `src/networks/` that defines it.
    pub file: &'static str,
    /// Authors, year, title and arXiv id of the paper.
    pub paper: &'static str,
    /// The implementation whose layers and counts are followed.
    pub reference: &'static str,
    /// What is published about its size. For a step with several networks, their sum.
    pub counts: Counts,
    /// Sizes of its published recipe; only the sizes that mean something for this
    /// network are `Some`, and only those can be changed by a request.
    pub input: Input,
    /// Batch size of its published recipe, on one card.
    pub batch: usize,
    /// Optimizer of its published recipe, or the nearest that burn-optim has.
    pub optimizer: OptimizerKind,
    /// The published recipe in one sentence.
    pub recipe: &'static str,
    /// Where this differs from the reference, each with the size of the effect.
    pub differences: &'static [&'static str],
}
