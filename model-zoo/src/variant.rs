//! A published network, as data.

use crate::{Input, OptimizerKind};

/// Exact published counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Elements of all parameters that receive a gradient.
    pub trainable: u64,
    /// Tensors that hold those elements.
    pub tensors: u64,
    /// Elements that the network keeps but no optimizer changes, other than frozen weights:
    /// running statistics, and noise that is drawn once.
    pub buffers: u64,
}

/// One published network.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The name by which [`find`](crate::find) knows it, for instance `resnet-50`.
    pub name: &'static str,
    /// The architecture that it is a member of, for instance `ResNet`.
    pub family: &'static str,
    /// The file of `src/networks/` that defines it, without `.rs`.
    pub file: &'static str,
    /// Authors, year, title and arXiv id of the paper.
    pub paper: &'static str,
    /// The implementation that has the same layers and counts.
    pub reference: &'static str,
    /// Published counts; for a step with several networks, their sum.
    pub counts: Counts,
    /// Sizes of a sample in the published recipe. A request can change those that are `Some`.
    pub input: Input,
    /// Samples in a batch on one card in the published recipe.
    pub batch: usize,
    /// Optimizer of the published recipe, or the most similar one that burn-optim has.
    pub optimizer: OptimizerKind,
    /// The published recipe in one sentence.
    pub recipe: &'static str,
    /// Differences from the reference, each with the size of its effect on memory.
    pub differences: &'static [&'static str],
}
