//! The end of a phase in a recording: what the program reports there about its buffers, and the state of the pools.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::phase::Phase;
use crate::recording::{BufferId, LayerId};

/// The end of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The phase that ended.
    pub phase: Phase,
    /// Optimizer steps completed before it.
    pub step: usize,
    /// The roles that the program reported for its buffers.
    pub roles: Vec<(BufferId, Role)>,
    /// Statistics of the pools at that point.
    pub pools: Pools,
    /// The most bytes that the pools reserved at once within the phase.
    pub peak_reserved: Bytes,
}

/// The role of a buffer, as the program reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// A parameter of a layer, trained or frozen.
    Parameter(LayerId),
    /// A running statistic of a layer.
    Buffer(LayerId),
    /// The gradient of a parameter of a layer.
    Gradient(LayerId),
    /// A parameter or a running statistic of a layer, in a copy of the model that the program keeps and does not train.
    Kept(LayerId),
    /// A tensor of the batch.
    Input,
}

/// A layer: a module that holds parameters of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layer {
    /// Its path in the module tree, for instance `layer1.0.conv1`.
    pub path: String,
    /// Its type, for instance `Conv2d`.
    pub kind: String,
}

/// Statistics of the pools of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pools {
    /// Number of allocations in use.
    pub allocations: u64,
    /// Bytes in use.
    pub in_use: Bytes,
    /// Bytes reserved from the card.
    pub reserved: Bytes,
}
