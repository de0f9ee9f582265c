//! What a run of a program on a simulated card leaves: its recording, and how the kernels were chosen.

use std::sync::Arc;

use recording::analysis::Timeline;
use recording::{BufferId, Bytes, Recording};
use serde::{Deserialize, Serialize};

use crate::card::DeviceSpec;
use crate::replay::{record_replay, replay};
use crate::{Choice, TrialSizes, Tuning};

/// The tensors that the modules of a program hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Parameters {
    /// Elements that receive a gradient.
    pub trainable: u64,
    /// Elements of weights that receive no gradient.
    pub frozen: u64,
    /// Elements of buffers: running statistics, and noise that is drawn once.
    pub buffers: u64,
    /// Number of tensors with trainable elements.
    pub tensors: u64,
    /// Bytes of the trainable and the frozen elements, without padding.
    pub bytes: Bytes,
}

/// The run of a program on a simulated device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Simulated {
    /// The simulated device.
    pub spec: DeviceSpec,
    /// The recording, event by event.
    pub recording: Recording,
    /// The tensors that the program's modules hold.
    pub parameters: Parameters,
    /// The most bytes that the pools reserved on the card at once.
    pub reserved: Bytes,
    /// The first run of the program in its process, in which burn tuned the kernels and the card had no limit, if that was a
    /// separate one. Not serialized.
    #[serde(skip)]
    pub first_run: Option<Arc<Simulated>>,
    /// The decisions of burn's tuner, if the process [listens](crate::listen) to them.
    pub choices: Vec<Choice>,
    /// The sizes of the buffers with which burn's tuner tried kernels.
    pub trials: TrialSizes,
    /// What the program did in all, if the card refused an allocation: it went on with unlimited memory. Not serialized.
    #[serde(skip)]
    pub continued: Option<Continued>,
}

/// A run in which a card refused an allocation and had unlimited memory from then on.
#[derive(Clone, Debug)]
pub struct Continued {
    pub(crate) recording: Recording,
    pub(crate) parameters: Parameters,
}

impl Simulated {
    /// A run of which only the device and the recording are known.
    pub fn of(spec: DeviceSpec, recording: Recording) -> Self {
        Self {
            spec,
            recording,
            parameters: Parameters::default(),
            reserved: Bytes::ZERO,
            first_run: None,
            choices: Vec::new(),
            trials: TrialSizes::default(),
            continued: None,
        }
    }

    /// The run on a card like `spec` of a program that makes the calls of `recording`, by a [replay](record_replay); its modules
    /// hold `parameters`.
    pub(crate) fn by_replay(
        spec: &DeviceSpec,
        recording: &Recording,
        parameters: Parameters,
    ) -> Self {
        let (recording, reserved) = record_replay(spec, recording);
        Self {
            parameters,
            reserved,
            ..Self::of(spec.clone(), recording)
        }
    }

    /// This run as it is on such a card with unlimited memory, by a replay there; `None` if it takes a run: a cold card tunes
    /// in other memory, and one may refuse an allocation as too large.
    pub(crate) fn without_limit(&self) -> Option<Self> {
        let warm = self.spec.simulation.tuning == Tuning::Warm;
        let unlimited = self.spec.without_limit();
        let (recording, parameters) = match &self.continued {
            Some(continued) => (&continued.recording, continued.parameters),
            None => (&self.recording, self.parameters),
        };
        let run = warm.then(|| Self::by_replay(&unlimited, recording, parameters));
        run.filter(|run| run.recording.failure.is_none())
    }

    /// The calls of the whole program, also those after the first allocation that the card refused.
    pub(crate) fn whole_recording(&self) -> &Recording {
        let continued = self.continued.as_ref();
        continued.map_or(&self.recording, |continued| &continued.recording)
    }

    /// The most bytes that the pools reserve at once in a training of many such steps.
    pub(crate) fn reserved_in_training(&self) -> Bytes {
        let bytes = |buffer: BufferId| self.recording.buffer(buffer).bytes;
        let goes_on = replay(&self.spec, &self.recording, bytes);
        self.reserved.max(goes_on.reserved)
    }

    /// The most bytes in use at once.
    pub fn most_in_use(&self) -> Bytes {
        Timeline::of(&self.recording).most()
    }

    /// Whether burn offers the same kernels on `device` as in this run, and its tuner chooses the same among them: the
    /// program then makes the same calls there, as far as the memory of `device` allows.
    pub fn chooses_as_on(&self, device: &DeviceSpec) -> bool {
        if !self.trials.hold_for(device.largest_trial()) {
            return false;
        }
        let offered = self.spec.kernel_group();
        // `Program::simulate_unlimited` lifts the limit of a single buffer where a step needs that.
        let lifted = || device.clone().without_binding_limit().kernel_group();
        offered == device.kernel_group() || offered == lifted()
    }
}

/// The first run of a step, in which burn tunes the kernels, on a card with room for every candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct FirstRun {
    /// The most bytes in use at once.
    pub live_bytes: Bytes,
    /// The most bytes that the pools reserved on the card at once. With less room burn leaves candidates out.
    pub reserved_bytes: Bytes,
}

impl FirstRun {
    /// The figures of `run`.
    pub(crate) fn of(run: &Simulated) -> Self {
        Self {
            live_bytes: run.most_in_use(),
            reserved_bytes: run.reserved_in_training(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CardSpec, Runtime};

    /// A run on a device like `spec`, where a kernel may have a buffer of `limit` and the tuner tried one of `largest`.
    fn run_on(spec: DeviceSpec, limit: Bytes, largest: Bytes) -> Simulated {
        let mut run = Simulated::of(spec, Recording::default());
        run.trials.add(largest, limit);
        run
    }

    /// CUDA allocates no more than a quarter of a card at once, so a card of 6 GiB has no room to try a buffer of 2 GiB.
    #[test]
    fn a_smaller_card_chooses_alike_if_it_can_try_the_same() {
        let card = |gib| {
            let unlimited = DeviceSpec::unlimited(Runtime::Cuda);
            unlimited.with_memory(Bytes::gib(gib), Bytes::ZERO)
        };
        let run = run_on(card(24).without_limit(), Bytes::gib(6), Bytes::gib(2));
        assert!(run.chooses_as_on(&card(24)));
        assert!(run.chooses_as_on(&card(16)));
        assert!(!run.chooses_as_on(&card(6)));
        let mut turing = card(24);
        turing.card.compute_capability = 75;
        assert!(!run.chooses_as_on(&turing));
    }

    /// A step with a buffer that is too large for a shader runs on a card without that limit.
    #[test]
    fn a_lifted_limit_of_a_buffer_changes_no_choice() {
        let unlimited = DeviceSpec::unlimited(Runtime::Wgpu);
        let device = unlimited.with_memory(Bytes::gib(24), Bytes::ZERO);
        let lifted = device.without_limit().without_binding_limit();
        let run = run_on(lifted, CardSpec::LARGEST_BINDING, Bytes::gib(1));
        assert!(run.chooses_as_on(&device));
        let mut other = device;
        other.card.alignment = 256;
        assert!(!run.chooses_as_on(&other));
    }
}
