//! Cards on which the programs of one training job run one after another, so that burn searches only once for
//! what it can fuse in the job, and its tuner learns only once about a card.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, FloatDType};
use recording::Bytes;
use simulated_card::{KernelPreference, listens};

use crate::Tuning;
use crate::card::{CardState, DeviceSpec, KernelGroup, SimulatedCard, Trials, TunerCalls};
use crate::run::{Run, run};
use crate::simulated::Simulated;
use crate::{Error, TrialSizes};

/// The cards of one training job with any number of samples, all with the same float type: one for each runtime if burn fuses,
/// else one for each [`KernelGroup`].
///
/// burn searches once for what it can fuse in the job: the result is the same for every batch, memory size, generation of cards
/// and kernel preference. The tuner's choices stay known for each batch, as on a machine that always runs the
/// job with that batch. Different jobs need different `TunedDevices`.
#[derive(Debug)]
pub struct TunedDevices {
    float: FloatDType,
    trials: Trials,
    cards: Mutex<Vec<(KernelGroup, Arc<Mutex<TunedDevice>>)>>,
}

/// A card for which burn knows what it can fuse in the job.
#[derive(Debug)]
struct TunedDevice {
    card: SimulatedCard,
    device: Device,
    /// The kernel groups to which the card has belonged.
    groups: Vec<KernelGroup>,
    /// The tuner's knowledge, by the index of the kernel group, batch and kernel preference: several where the memory of the
    /// cards decided which kernels the tuner could try.
    tuned: HashMap<(usize, u64, KernelPreference), Vec<Tuned>>,
    /// How many runtime names are in use; none before the first run on the card.
    names: usize,
}

/// The tuner's knowledge about a card.
#[derive(Clone, Debug)]
struct Tuned {
    /// The index of the runtime name under which the tuner knows it.
    name: usize,
    trials: TrialSizes,
    /// The first run on the card, if the tuner learned it in that run.
    first_run: Option<Arc<Simulated>>,
}

impl Tuned {
    /// The knowledge among `known` that holds for a card on which a kernel may have a buffer of `limit`; without any, a new
    /// one under the next of the `names`. Also returns whether it is new.
    fn for_limit<'a>(
        known: &'a mut Vec<Self>,
        limit: Bytes,
        names: &mut usize,
    ) -> (&'a mut Self, bool) {
        let place = known.iter().position(|tuned| tuned.trials.hold_for(limit));
        if place.is_none() {
            known.push(Self {
                name: *names,
                trials: TrialSizes::default(),
                first_run: None,
            });
            *names += 1;
        }
        let place_or_last = place.unwrap_or(known.len() - 1);
        (&mut known[place_or_last], place.is_none())
    }
}

/// What the calls of a run are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// They are part of an answer.
    Answer,
    /// A batch is proposed from them.
    Sketch,
}

impl Purpose {
    /// Whether the run on a card with this state serves the purpose.
    fn is_served_by(self, card: &CardState) -> bool {
        match self {
            Self::Answer => card.is_settled(),
            Self::Sketch => card.has_calls_of_program(),
        }
    }
}

impl TunedDevices {
    /// A set without cards; programs on them create floats of the type `float`.
    pub fn new(float: FloatDType) -> Self {
        Self {
            float,
            trials: Trials::AsBurn,
            cards: Mutex::default(),
        }
    }

    /// Tunes kernels in less time, but does not report the [first run](Simulated::first_run).
    pub fn without_first_runs(self) -> Self {
        Self {
            trials: Trials::Once,
            ..self
        }
    }

    /// Runs `program`, the job with `batch` samples, on a card like `spec`, as
    /// [`simulate`](crate::simulate) does.
    ///
    /// # Errors
    ///
    /// As for [`simulate`](crate::simulate).
    pub fn simulate(
        &self,
        batch: u64,
        spec: DeviceSpec,
        program: impl Fn(&mut Run) + Sync,
    ) -> Result<Simulated, Error> {
        self.run(batch, spec, &program, Purpose::Answer)
    }

    /// Like [`simulate`](Self::simulate), but the calls are perhaps those that the program makes while burn searches for
    /// what it can fuse.
    pub(crate) fn sketch(
        &self,
        batch: u64,
        spec: DeviceSpec,
        program: impl Fn(&mut Run) + Sync,
    ) -> Result<Simulated, Error> {
        self.run(batch, spec, &program, Purpose::Sketch)
    }

    /// Runs `program`, the job with `batch` samples, on a card like `spec` until a run serves the `purpose`.
    fn run(
        &self,
        batch: u64,
        spec: DeviceSpec,
        program: &(impl Fn(&mut Run) + Sync),
        purpose: Purpose,
    ) -> Result<Simulated, Error> {
        if spec.simulation.tuning == Tuning::Cold {
            // A new card: a first run also searches for what burn can fuse.
            let card = SimulatedCard::new(spec)?;
            let device = card.configured(self.float)?;
            return run(&card, device, program, Trials::AsBurn);
        }
        let card = self.card(&spec)?;
        let mut card = card.lock().unwrap_or_else(PoisonError::into_inner);
        let simulated = card.simulate(batch, &spec, program, self.trials, purpose);
        if simulated.is_err() {
            // A program that panicked may have left operations behind that burn was about to fuse.
            let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
            let group = same_fusion(&spec);
            cards.retain(|(known, _)| *known != group);
        }
        simulated
    }

    /// The card that can become one like `spec`, created on first use.
    fn card(&self, spec: &DeviceSpec) -> Result<Arc<Mutex<TunedDevice>>, Error> {
        let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        let group = same_fusion(spec);
        if let Some((_, card)) = cards.iter().find(|(known, _)| *known == group) {
            return Ok(card.clone());
        }
        let card = SimulatedCard::new(spec.clone())?;
        let explored = Arc::new(Mutex::new(TunedDevice {
            device: card.configured(self.float)?,
            card,
            groups: Vec::new(),
            tuned: HashMap::new(),
            names: 0,
        }));
        cards.push((group, explored.clone()));
        Ok(explored)
    }
}

/// The cards on which burn finds the same to fuse as on one like `spec`. Without fusion there is nothing to find, and cards
/// with other kernels can run at the same time.
fn same_fusion(spec: &DeviceSpec) -> KernelGroup {
    let kernels = spec.kernel_group();
    match cfg!(feature = "fusion") && spec.simulation.fused {
        true => kernels.of_any_generation(),
        false => kernels,
    }
}

impl TunedDevice {
    fn simulate(
        &mut self,
        batch: u64,
        spec: &DeviceSpec,
        program: &(impl Fn(&mut Run) + Sync),
        trials: Trials,
        purpose: Purpose,
    ) -> Result<Simulated, Error> {
        let limit = spec.largest_trial();
        let group = self.group(spec);
        let known = self.tuned.entry((group, batch, spec.simulation.preference));
        let has_run = self.names > 0;
        let (tuned, is_new) = Tuned::for_limit(known.or_default(), limit, &mut self.names);
        // The tuner is going to learn, and nobody asks how much memory that takes. A first run on the card would not serve an
        // answer, since burn also searches in it for what it can fuse.
        let mut only_learns = cfg!(feature = "autotune")
            && is_new
            && trials == Trials::Once
            && !(listens() && (has_run || purpose == Purpose::Sketch));
        let mut choices = Vec::new();
        // Later burn knows what it can fuse, so the run is not as the first of a process.
        let mut is_first = !has_run;
        for _ in 0..MAX_TUNING_RUNS {
            let tuner_calls = match (std::mem::take(&mut only_learns), trials) {
                (true, _) => TunerCalls::Only,
                (false, Trials::Once) if listens() => TunerCalls::Apart,
                (false, _) => TunerCalls::OnCard,
            };
            self.card.restart(spec.clone(), tuned.name, tuner_calls);
            let mut simulated = run(&self.card, self.device.clone(), program, trials)?;
            tuned.trials = tuned.trials.with(simulated.trials);
            choices.append(&mut simulated.choices);
            if purpose.is_served_by(self.card.shared()) {
                return Ok(Simulated {
                    first_run: tuned.first_run.clone(),
                    choices,
                    trials: tuned.trials,
                    ..simulated
                });
            }
            if is_first && trials == Trials::AsBurn {
                tuned.first_run = Some(Arc::new(simulated));
            }
            is_first = false;
        }
        Err(Error::NeverTuned)
    }

    /// The index of the kernel group of `spec`.
    fn group(&mut self, spec: &DeviceSpec) -> usize {
        let kernels = spec.kernel_group();
        let known = self.groups.iter().position(|known| *known == kernels);
        known.unwrap_or_else(|| {
            self.groups.push(kernels);
            self.groups.len() - 1
        })
    }
}

/// Runs `program` on a new card like `spec`. The program creates floats of the type `float`.
///
/// With burn's `autotune`, the program first runs on a card with unlimited memory, where burn tunes its
/// kernels, unless the card is [cold](crate::Tuning::Cold).
///
/// If the card refuses an allocation, the recording has a [`failure`](recording::Recording::failure) and ends with the
/// phase in which the card refused.
///
/// # Errors
///
/// The program panicked ([`Error::Panicked`], or [`Error::NoKernel`] if burn has no kernel for it on such a card), the
/// card does not offer the type ([`Error::Precision`]), burn's tuner does not settle on kernels ([`Error::NeverTuned`]),
/// or the process has had too many cards ([`Error::TooManyCards`]).
///
/// # Examples
///
/// ```
/// use burn::module::Module;
/// use burn::nn::LinearConfig;
/// use burn::tensor::{FloatDType, Tensor};
/// use estimator::{DeviceSpec, Phase, Runtime, simulate};
///
/// let card = DeviceSpec::unlimited(Runtime::Cuda);
/// let simulated = simulate(card, FloatDType::F32, |run| {
///     let device = run.device();
///     let layer = LinearConfig::new(1024, 1024).init(&device);
///     run.module("", &layer);
///     run.end(Phase::Init);
///     let output = layer.forward(Tensor::<2>::zeros([64, 1024], &device));
///     run.module("", &layer);
///     run.end(Phase::Forward);
///     drop(output);
/// })?;
/// assert_eq!(simulated.parameters.trainable, 1024 * 1024 + 1024);
/// # Ok::<(), estimator::Error>(())
/// ```
pub fn simulate(
    spec: DeviceSpec,
    float: FloatDType,
    program: impl Fn(&mut Run) + Sync,
) -> Result<Simulated, Error> {
    TunedDevices::new(float).simulate(1, spec, program)
}

/// The most runs until no kernel is left to tune. A program does the same in each run, so the second run has
/// nothing left to tune, unless it depends on the choices of the first.
pub const MAX_TUNING_RUNS: usize = 4;
