//! A card, the runtime that drives it, and how its simulation behaves.

use cubecl_ir::{DeviceIdentity, DeviceProperties};
use cubecl_server::server::IoError;
use recording::{Bytes, QueueLag, Refusal};
use serde::{Deserialize, Serialize};

use crate::card_spec::CardSpec;
use crate::in_place::InPlace;
use crate::runtime::{self, Runtime};
use crate::storage::Refusals;
use crate::tuning::{KernelPreference, Tuning};

/// A card, the runtime that drives it, and how its simulation behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceSpec {
    /// The hardware.
    pub card: CardSpec,
    /// The runtime through which burn drives the card.
    pub runtime: Runtime,
    /// How the simulation behaves.
    pub simulation: Simulation,
}

/// How a simulation behaves where real runs differ from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Simulation {
    /// Whether burn fuses operations, where it is built with `fusion`.
    pub fused: bool,
    /// What burn's tuner knows about the card when a program begins.
    pub tuning: Tuning,
    /// Which of the kernels that burn's tuner tries is the fastest.
    pub preference: KernelPreference,
    /// The queue lag of the device's thread.
    pub queue_lag: QueueLag,
    /// Whether burn overwrites operands in place.
    pub in_place: InPlace,
    /// Requests for memory that the card refuses although it has room.
    pub refusals: Option<Refusals>,
    /// The largest buffer that a kernel may have when burn's tuner tries it, if that is not the largest
    /// allocation: the limit of the card that a card with unlimited memory stands for.
    pub largest_trial: Option<Bytes>,
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            fused: true,
            tuning: Tuning::default(),
            preference: KernelPreference::default(),
            queue_lag: QueueLag::default(),
            in_place: InPlace::default(),
            refusals: None,
            largest_trial: None,
        }
    }
}

/// A group of devices on which burn offers the same kernels: a step makes the same calls on all of them, as
/// far as the memory of each allows.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelGroup {
    runtime: Runtime,
    fused: bool,
    /// What the runtime registers for a card, whatever its memory; `None` for cards of any generation.
    offered: Option<DeviceProperties>,
}

impl KernelGroup {
    /// The groups of this runtime for cards of any generation. What burn can fuse in a program is the same on all of them: of
    /// the properties of a card, its fusers only ask for `max_bindings` (`burn-cubecl-fusion` 0.22.1, `src/optim`).
    pub fn of_any_generation(self) -> Self {
        let has_generations = !self.runtime.rules().binds_whole_buffers();
        Self {
            offered: self.offered.filter(|_| !has_generations),
            ..self
        }
    }
}

impl DeviceSpec {
    /// `card`, driven by `runtime`.
    pub fn new(card: CardSpec, runtime: Runtime) -> Self {
        Self {
            card,
            runtime,
            simulation: Simulation::default(),
        }
    }

    /// A card with unlimited memory, driven by `runtime`. Its kernels are those of an Ampere card (compute
    /// capability 8.6).
    pub fn unlimited(runtime: Runtime) -> Self {
        Self::new(CardSpec::unlimited(), runtime)
    }

    /// This device with `total` memory, of which `overhead` is not available to the job.
    pub fn with_memory(mut self, total: Bytes, overhead: Bytes) -> Self {
        self.card.total = Some(total);
        self.card.overhead = overhead;
        self.simulation.largest_trial = None;
        self
    }

    /// This device, of whose memory `free` is available to the job; it has at least that much in total.
    pub fn with_free(self, free: Bytes) -> Self {
        // A runtime asks for the total memory of a device, whoever holds it.
        let total = self.card.total.unwrap_or(free).max(free);
        self.with_memory(total, total.saturating_sub(free))
    }

    /// This device with unlimited memory. burn's tuner chooses the same kernels on it.
    pub fn without_limit(&self) -> Self {
        let mut unlimited = self.clone();
        if unlimited.card.total.take().is_some() {
            unlimited.simulation.largest_trial = Some(self.largest_trial());
        }
        unlimited.card.overhead = Bytes::ZERO;
        unlimited
    }

    /// This device, whose shaders can bind a buffer of any size.
    pub fn without_binding_limit(mut self) -> Self {
        self.card.largest_binding = Bytes(u64::MAX / 8);
        self
    }

    /// This device, about which burn's tuner knows what `tuning` says.
    pub fn with_tuning(mut self, tuning: Tuning) -> Self {
        self.simulation.tuning = tuning;
        self
    }

    /// This device, on which the kernels that `preference` names are the fastest.
    pub fn with_preference(mut self, preference: KernelPreference) -> Self {
        self.simulation.preference = preference;
        self
    }

    /// This device with this queue lag.
    pub fn with_queue_lag(mut self, queue_lag: QueueLag) -> Self {
        self.simulation.queue_lag = queue_lag;
        self
    }

    /// This device, on which burn overwrites operands as `in_place` says.
    pub fn with_in_place(mut self, in_place: InPlace) -> Self {
        self.simulation.in_place = in_place;
        self
    }

    /// This device, on which burn fuses nothing.
    pub fn unfused(mut self) -> Self {
        self.simulation.fused = false;
        self
    }

    /// The group of devices on which burn offers the same kernels as on this one: the runtime registers the same for their
    /// cards. The number of multiprocessors does not matter: it only decides how a kernel's work is divided among them.
    pub fn kernel_group(&self) -> KernelGroup {
        let card = CardSpec {
            multiprocessors: 0,
            ..self.without_limit().card
        };
        let offered = DeviceProperties {
            identity: DeviceIdentity::default(),
            ..self.runtime.rules().properties(&card)
        };
        KernelGroup {
            runtime: self.runtime,
            fused: self.simulation.fused,
            offered: Some(offered),
        }
    }

    /// Memory that the pools may reserve on the card; `None` if unlimited.
    pub fn available(&self) -> Option<Bytes> {
        let total = self.card.total?;
        Some(total.saturating_sub(self.card.overhead))
    }

    /// The most bytes of shared memory that a block may opt in to, on CUDA.
    pub fn shared_memory_per_block(&self) -> usize {
        runtime::shared_memory(self.card.compute_capability)
    }

    /// The largest single allocation.
    pub fn largest_page(&self) -> Bytes {
        self.runtime.rules().largest_page(&self.card)
    }

    /// The largest buffer that a kernel may have when burn's tuner tries it.
    pub fn largest_trial(&self) -> Bytes {
        let limit = self.simulation.largest_trial;
        limit.unwrap_or_else(|| self.largest_page())
    }

    /// Why such a card refused an allocation that failed with `error`.
    pub fn refusal(&self, error: &IoError) -> Refusal {
        match error {
            IoError::BufferTooBig { .. } => Refusal::TooLarge {
                largest: self.largest_page(),
            },
            _ => Refusal::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The WGSL compiler and the SPIR-V compiler of `cubecl-wgpu` 0.11.3 ask a driver for its limits and never for a
    /// compute capability, which only CUDA has.
    #[test]
    fn generations_matter_to_cuda_alone() {
        let turing = |runtime| {
            let mut device = DeviceSpec::unlimited(runtime);
            device.card.name = "GeForce RTX 2080".into();
            device.card.compute_capability = 75;
            device
        };
        for (runtime, are_one_group) in [
            (Runtime::Cuda, false),
            (Runtime::Vulkan, true),
            (Runtime::Wgpu, true),
        ] {
            let ampere = DeviceSpec::unlimited(runtime).kernel_group();
            let turing = turing(runtime);
            assert_eq!(turing.kernel_group() == ampere, are_one_group, "{runtime}");
            let mut small = turing.clone();
            small.card.largest_binding = Bytes::mib(128);
            let is_cuda = runtime == Runtime::Cuda;
            assert_eq!(
                small.kernel_group() == turing.kernel_group(),
                is_cuda,
                "{runtime}"
            );
        }
    }
}
