//! What a PyTorch program did to the memory of one device, event by event.

use std::sync::Arc;

use recording::{Bytes, PhaseOfStep};
use serde::{Deserialize, Serialize};

use crate::allocator::Stream;

/// A block of memory, numbered in the order of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A text of a trace: an operator, the name of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub u32);

/// A module of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block is allocated.
    Allocate(BlockId),
    /// A block is freed.
    Free(BlockId),
    /// The program called `torch.cuda.empty_cache()`.
    EmptyCache,
    /// The program called `torch.cuda.reset_peak_memory_stats()`.
    ResetPeaks,
    /// A phase begins; an index into [`Trace::phases`].
    Phase(u32),
}

/// Why a block exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// It is the storage of a tensor.
    Tensor,
    /// A library keeps it: cuBLAS' workspace.
    Workspace,
    /// A kernel takes it for itself and gives it back before it ends.
    KernelTemporary,
    /// The same, but where memory is short another kernel is taken that does without: cuDNN's workspace of a convolution
    /// (`try_plans` in PyTorch's `native/cudnn/Conv_v8.cpp`).
    Optional,
}

impl BlockKind {
    /// The kinds, by the number that a stream has for each.
    pub(crate) const ALL: [Self; 4] = [
        Self::Tensor,
        Self::Workspace,
        Self::KernelTemporary,
        Self::Optional,
    ];
}

/// What a tensor is for, where the recorder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A parameter of a module, trained or frozen.
    Parameter,
    /// A buffer of a module.
    Buffer,
    /// The gradient of a parameter.
    Gradient,
    /// State of an optimizer.
    Optimizer,
    /// The batch.
    Input,
}

/// A block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The bytes that the program asked for.
    pub bytes: u64,
    /// The operator that allocated it.
    pub operator: Option<NameId>,
    /// The module that was active.
    pub module: Option<ModuleId>,
    /// The stream on which it was allocated.
    pub stream: Stream,
    /// Why it exists.
    pub kind: BlockKind,
    /// What it is for, if the recorder knows.
    pub role: Option<Role>,
    /// The parameter that it is, or is the gradient or state of.
    pub parameter: Option<NameId>,
}

impl Block {
    /// A tensor of which only the bytes are known, on the default stream.
    pub(crate) fn tensor(bytes: u64) -> Self {
        Self {
            bytes,
            operator: None,
            module: None,
            stream: 0,
            kind: BlockKind::Tensor,
            role: None,
            parameter: None,
        }
    }
}

/// A module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// Its path in the tree of modules; empty for the root.
    pub path: String,
    /// Its class.
    pub class: String,
}

/// Something in the program that was not followed exactly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Approximation {
    /// Its kind: "data-dependent size", for instance.
    pub kind: String,
    /// The operator, and the line of the program.
    pub text: String,
    /// The bytes of the blocks whose size it decides.
    pub bytes: Bytes,
    /// How often it happened.
    pub count: u64,
}

/// What a program did to the memory of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The blocks, by [`BlockId`].
    pub blocks: Vec<Block>,
    /// The events, in program order.
    pub events: Arc<Vec<Event>>,
    /// The phases, by the index in [`Event::Phase`].
    pub phases: Arc<Vec<PhaseOfStep>>,
    /// The texts, by [`NameId`].
    pub names: Arc<Vec<String>>,
    /// The modules, by [`ModuleId`].
    pub modules: Arc<Vec<Module>>,
}

impl Trace {
    /// A block of this trace.
    pub fn block(&self, block: BlockId) -> &Block {
        &self.blocks[block.0 as usize]
    }

    /// A text of this trace.
    pub fn name(&self, name: NameId) -> &str {
        &self.names[name.0 as usize]
    }

    /// The operator that allocated a block.
    pub fn operator(&self, block: BlockId) -> Option<&str> {
        Some(self.name(self.block(block).operator?))
    }

    /// The path of the module that a block belongs to: that of its parameter, or else the one that was active.
    pub fn module_path(&self, block: BlockId) -> Option<&str> {
        let block = self.block(block);
        match block.parameter {
            Some(name) => {
                let name = self.name(name);
                Some(name.rsplit_once('.').map_or("", |(path, _)| path))
            }
            None => Some(&self.modules[block.module?.0 as usize].path),
        }
    }

    /// The phase of the event at `position`: the one that began last.
    pub fn phase_at(&self, position: usize) -> Option<PhaseOfStep> {
        let before = self.events[..=position].iter().rev();
        before.into_iter().find_map(|event| match event {
            Event::Phase(phase) => Some(self.phases[*phase as usize]),
            _ => None,
        })
    }

    /// The most bytes that were asked for at once, without optional blocks. No device with less can run the program, whatever
    /// the allocator does.
    pub fn max_requested_bytes(&self) -> u64 {
        let mut requested = 0;
        let mut most = 0;
        let needed = |block: BlockId| match self.block(block).kind {
            BlockKind::Optional => 0,
            _ => self.block(block).bytes,
        };
        for event in self.events.iter() {
            match event {
                Event::Allocate(block) => requested += needed(*block),
                Event::Free(block) => requested -= needed(*block),
                _ => {}
            }
            most = most.max(requested);
        }
        most
    }
}
