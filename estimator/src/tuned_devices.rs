//! Cards on which the programs of one training job run one after another, so that burn searches only once for
//! what it can fuse in the job, and its tuner learns only once about a card.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, FloatDType};
use simulated_card::KernelPreference;

use crate::Tuning;
use crate::card::{DeviceSpec, KernelGroup, SimulatedCard, Trials};
use crate::run::{FirstRun, Run, Simulated, TrialSizes, run};
use crate::{Bytes, Error};

/// The cards of one training job with any number of samples: one for each [`KernelGroup`], all with the same
/// float type.
///
/// burn searches once for what it can fuse in the job: the result is the same for every batch, memory size
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
    /// The tuner's knowledge, by batch and kernel preference: several where the memory of the cards decided
    /// which kernels the tuner could try.
    tuned: HashMap<(u64, KernelPreference), Vec<Tuned>>,
    /// How many runtime names are in use.
    names: usize,
}

/// The tuner's knowledge about a card.
#[derive(Clone, Copy, Debug)]
struct Tuned {
    /// The index of the runtime name under which the tuner knows it.
    name: usize,
    trials: TrialSizes,
    /// The run in which the tuner learned it, if it tuned anything in that run.
    first_run: Option<FirstRun>,
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

    /// Tunes kernels in less time, but does not report the [runs](FirstRun) in which burn tunes them.
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
        if spec.simulation.tuning == Tuning::Cold {
            // A new card: a first run also searches for what burn can fuse.
            let card = SimulatedCard::new(spec)?;
            let device = card.configured(self.float)?;
            return run(&card, device, &program, Trials::AsBurn);
        }
        let card = self.card(&spec)?;
        let mut card = card.lock().unwrap_or_else(PoisonError::into_inner);
        let simulated = card.simulate(batch, &spec, &program, self.trials);
        if simulated.is_err() {
            // A program that panicked may have left operations behind that burn was about to fuse.
            let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
            let kernels = spec.kernel_group();
            cards.retain(|(known, _)| *known != kernels);
        }
        simulated
    }

    /// The card with the kernels of `spec`, created on first use.
    fn card(&self, spec: &DeviceSpec) -> Result<Arc<Mutex<TunedDevice>>, Error> {
        let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        let kernels = spec.kernel_group();
        if let Some((_, card)) = cards.iter().find(|(known, _)| *known == kernels) {
            return Ok(card.clone());
        }
        let card = SimulatedCard::new(spec.clone())?;
        let explored = Arc::new(Mutex::new(TunedDevice {
            device: card.configured(self.float)?,
            card,
            tuned: HashMap::new(),
            names: 0,
        }));
        cards.push((kernels, explored.clone()));
        Ok(explored)
    }
}

impl TunedDevice {
    fn simulate(
        &mut self,
        batch: u64,
        spec: &DeviceSpec,
        program: &(impl Fn(&mut Run) + Sync),
        trials: Trials,
    ) -> Result<Simulated, Error> {
        let limit = spec.largest_trial();
        let known = self.tuned.entry((batch, spec.simulation.preference));
        let known = known.or_default();
        let place = known.iter().position(|tuned| tuned.trials.hold_for(limit));
        // The tuner is going to learn, and nobody asks how much memory that takes.
        let mut only_tunes =
            cfg!(feature = "autotune") && place.is_none() && trials == Trials::Once;
        let place = place.unwrap_or_else(|| {
            known.push(Tuned {
                name: self.names,
                trials: TrialSizes {
                    limit,
                    largest: Bytes::ZERO,
                },
                first_run: None,
            });
            self.names += 1;
            known.len() - 1
        });
        let tuned = &mut known[place];
        let mut choices = Vec::new();
        for _ in 0..MAX_TUNING_RUNS {
            self.card.restart(spec.clone(), tuned.name, only_tunes);
            let simulated = run(&self.card, self.device.clone(), program, trials)?;
            let only_tuned = std::mem::take(&mut only_tunes);
            if !only_tuned && !self.card.shared().tuned() {
                return Ok(Simulated {
                    first_run: tuned.first_run.filter(|_| trials == Trials::AsBurn),
                    choices,
                    trials: tuned.trials,
                    ..simulated
                });
            }
            // What the tuner knew before holds for this limit too.
            tuned.trials = TrialSizes {
                limit,
                largest: tuned.trials.largest.max(simulated.trials.largest),
            };
            tuned.first_run.get_or_insert_with(|| FirstRun {
                live_bytes: simulated.most_in_use(),
                reserved_bytes: simulated.reserved,
            });
            choices.extend(simulated.choices);
        }
        Err(Error::NeverTuned)
    }
}

/// Runs `program` on a new card like `spec`. The program creates floats of the type `float`.
///
/// With burn's `autotune`, the program first runs on a card with unlimited memory, where burn tunes its
/// kernels, unless the card is [cold](crate::Tuning::Cold).
///
/// If the card refuses an allocation, the recording has a [`failure`](crate::record::Recording::failure) and ends with the
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
