//! Cards on which programs are run one after another, so that what burn's tuner finds out about
//! a card is found out once.

use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, FloatDType};

use crate::Error;
use crate::Tuning;
use crate::card::{CardSpec, SimulatedCard};
use crate::run::{FirstRun, Run, Simulated, Stopped, run};

/// Cards, one of each kind that was asked for, whose floats are of one type.
///
/// What one program has tuned is not tuned again for the next, as on a machine on which both are
/// run. Programs that are to know nothing of each other go to workbenches of their own.
#[derive(Debug)]
pub struct Workbench {
    float: FloatDType,
    cards: Mutex<Vec<(CardSpec, Arc<Mutex<Tuned>>)>>,
}

/// A card that is tuned to the programs that it has run.
#[derive(Debug)]
struct Tuned {
    card: SimulatedCard,
    device: Device,
}

impl Workbench {
    /// An empty one; the floats that programs create on it are of the type `float`.
    pub fn new(float: FloatDType) -> Self {
        Self {
            float,
            cards: Mutex::default(),
        }
    }

    /// Runs `program` on a card like `spec`, as [`simulate`](crate::simulate) does.
    ///
    /// # Errors
    ///
    /// The program panicked, or the card does not offer the type of floats.
    pub fn simulate(
        &self,
        spec: CardSpec,
        program: impl Fn(&mut Run) -> Result<(), Stopped> + Sync,
    ) -> Result<Simulated, Error> {
        if spec.tuning == Tuning::Cold || !cfg!(feature = "autotune") {
            let card = SimulatedCard::new(spec)?;
            return run(&card, card.configured(self.float)?, &program);
        }
        let (tuned, new) = self.card(&spec)?;
        // A program that panicked on it has left a card that is restarted now.
        let mut tuned = tuned.lock().unwrap_or_else(PoisonError::into_inner);
        let mut first_run = None;
        let mut choices = Vec::new();
        for _ in 0..MOST_RUNS {
            tuned.card.restart(spec.clone());
            let simulated = run(&tuned.card, tuned.device.clone(), &program)?;
            if !tuned.card.shared().tuned() {
                return Ok(Simulated {
                    first_run: first_run.filter(|_| new),
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

    /// The card with the kernels of `spec`, and whether it is a new one.
    fn card(&self, spec: &CardSpec) -> Result<(Arc<Mutex<Tuned>>, bool), Error> {
        let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        let kernels = spec.kernels();
        if let Some((_, tuned)) = cards.iter().find(|(known, _)| *known == kernels) {
            return Ok((tuned.clone(), false));
        }
        let card = SimulatedCard::new(spec.clone())?;
        let device = card.configured(self.float)?;
        let tuned = Arc::new(Mutex::new(Tuned { card, device }));
        cards.push((kernels, tuned.clone()));
        Ok((tuned, true))
    }
}

/// A program does the same each time that it is run, so the second run has nothing left to tune;
/// what is tuned then could depend on the choices of the first.
const MOST_RUNS: usize = 4;
