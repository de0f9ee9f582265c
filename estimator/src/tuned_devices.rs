//! Cards on which the programs of one training job are run one after another, so that what burn finds
//! out about the job, and what its tuner finds out about a card, is found out once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, FloatDType};
use simulated_card::KernelPreference;

use crate::Error;
use crate::Tuning;
use crate::card::{DeviceSpec, KernelGroup, SimulatedCard, Trials};
use crate::run::{Aborted, FirstRun, Run, Simulated, run};

/// Cards, one of each kind that was asked for, whose floats are of one type, for one training job with any
/// number of samples.
///
/// burn looks once for what it can fuse in the job: that is the same whatever the batch, the memory
/// of the card and the choice of kernels. What its tuner chooses is known for as long as the batch is
/// the same, as on a machine on which the job is run with that batch. Different jobs go to workbenches
/// of their own.
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
    /// What its tuner knows, by the batch and by which candidate was fastest.
    tuned: HashMap<(u64, KernelPreference), Tuned>,
}

/// What burn's tuner knows of a card.
#[derive(Clone, Copy, Debug)]
struct Tuned {
    /// Under which of the card's names it knows that.
    name: usize,
    /// The run in which it was found out, if anything was tuned in it.
    first_run: Option<FirstRun>,
}

impl TunedDevices {
    /// An empty one; the floats that programs create on it are of the type `float`.
    pub fn new(float: FloatDType) -> Self {
        Self {
            float,
            trials: Trials::AsBurn,
            cards: Mutex::default(),
        }
    }

    /// One on which kernels are tuned in less time, and nothing is said of the [runs](FirstRun) in which they
    /// are.
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
    /// The program panicked, or the card does not offer the type of floats.
    pub fn simulate(
        &self,
        batch: u64,
        spec: DeviceSpec,
        program: impl Fn(&mut Run) -> Result<(), Aborted> + Sync,
    ) -> Result<Simulated, Error> {
        if spec.simulation.tuning == Tuning::Cold {
            // What is fused is found out in the first run too.
            let card = SimulatedCard::new(spec)?;
            let device = card.configured(self.float)?;
            return run(&card, device, &program, Trials::AsBurn);
        }
        let card = self.card(&spec)?;
        let mut card = card.lock().unwrap_or_else(PoisonError::into_inner);
        let simulated = card.simulate(batch, &spec, &program, self.trials);
        if simulated.is_err() {
            // Operations that were to be fused may be left over from a program that panicked.
            let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
            let kernels = spec.kernel_group();
            cards.retain(|(known, _)| *known != kernels);
        }
        simulated
    }

    /// The card with the kernels of `spec`.
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
        program: &(impl Fn(&mut Run) -> Result<(), Aborted> + Sync),
        trials: Trials,
    ) -> Result<Simulated, Error> {
        let tuned = self
            .tuned
            .get(&(batch, spec.simulation.preference))
            .copied();
        let name = tuned.map_or(self.tuned.len(), |tuned| tuned.name);
        let mut first_run = tuned.and_then(|tuned| tuned.first_run);
        let mut choices = Vec::new();
        for _ in 0..MAX_RUNS {
            self.card.restart(spec.clone(), name);
            let simulated = run(&self.card, self.device.clone(), program, trials)?;
            if !self.card.shared().tuned() {
                let first_run = first_run.filter(|_| trials == Trials::AsBurn);
                let tuned = Tuned { name, first_run };
                self.tuned
                    .insert((batch, spec.simulation.preference), tuned);
                return Ok(Simulated {
                    first_run,
                    choices,
                    ..simulated
                });
            }
            first_run.get_or_insert_with(|| FirstRun {
                live_bytes: simulated.most_in_use(),
                reserved_bytes: simulated.reserved,
            });
            choices.extend(simulated.choices);
        }
        Err(Error::NeverTuned)
    }
}

/// A program does the same each time that it is run, so the second run has nothing left to tune;
/// what is tuned then could depend on the choices of the first.
const MAX_RUNS: usize = 4;
