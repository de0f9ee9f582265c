//! Runs of a program that the search for the largest batch needs twice.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use recording::{QueueLag, Recording};

use crate::card::DeviceSpec;
use crate::job::Program;
use crate::queue_lag::refused_with_lag;
use crate::simulated::Simulated;
use crate::{Error, OutOfMemory, Tuning};

/// What a device refused of a step, if anything; or why the step failed.
type Outcome = Result<Option<OutOfMemory>, Error>;

/// A program whose latest runs are remembered: the search needs some of them twice.
pub(super) struct Remembering<'a, P> {
    pub program: &'a P,
    latest: Mutex<VecDeque<(u64, Arc<Simulated>)>>,
    /// By batch and device.
    outcomes: Mutex<Vec<(u64, DeviceSpec, Outcome)>>,
}

/// How many runs are remembered: those of two batches, with and without a limit.
const REMEMBERED: usize = 4;

impl<'a, P> Remembering<'a, P> {
    pub fn new(program: &'a P) -> Self {
        Self {
            program,
            latest: Mutex::default(),
            outcomes: Mutex::default(),
        }
    }
}

impl<P: Program> Remembering<'_, P> {
    /// The run with `batch` samples on a device like `spec` with unlimited memory: what the run on the device itself went
    /// on to do, if that is remembered.
    pub fn on_unlimited(&self, batch: u64, spec: &DeviceSpec) -> Result<Simulated, Error> {
        let known = self.known(batch, spec);
        match known.and_then(|run| run.without_limit()) {
            Some(run) => Ok(run),
            None => self.simulate_unlimited(batch, spec),
        }
    }

    /// The run with `batch` samples on a device like `spec`, if it is remembered.
    fn known(&self, batch: u64, spec: &DeviceSpec) -> Option<Arc<Simulated>> {
        let latest = self.latest.lock().expect("nothing panics with it");
        let mut latest = latest.iter();
        let known = latest.find(|(of, run)| *of == batch && run.spec == *spec);
        known.map(|(_, run)| run.clone())
    }

    /// Runs the program with `batch` samples on a device like `spec`. Also returns the allocation that the device refused, in
    /// that run or with one of `lags`.
    pub fn attempt(
        &self,
        batch: u64,
        spec: &DeviceSpec,
        lags: &[QueueLag],
    ) -> Result<(Simulated, Option<OutOfMemory>), Error> {
        if let Some(outcome) = self.outcome(batch, spec) {
            let refused = outcome?;
            return Ok((self.simulate(batch, spec.clone())?, refused));
        }
        let run = self.simulate(batch, spec.clone())?;
        let refused = match run.outcome() {
            Ok(()) => refused_with_lag(&run, lags),
            Err(refused) => Some(refused),
        };
        self.remember(batch, spec, Ok(refused.clone()));
        Ok((run, refused))
    }

    fn outcome(&self, batch: u64, spec: &DeviceSpec) -> Option<Outcome> {
        let outcomes = self.outcomes.lock().expect("nothing panics with it");
        let mut outcomes = outcomes.iter();
        let known = outcomes.find(|(of, on, _)| *of == batch && on == spec);
        known.map(|(.., outcome)| outcome.clone())
    }

    fn remember(&self, batch: u64, spec: &DeviceSpec, outcome: Outcome) {
        let mut outcomes = self.outcomes.lock().expect("nothing panics with it");
        outcomes.push((batch, spec.clone(), outcome));
    }
}

impl<P: Program> Program for Remembering<'_, P> {
    fn simulate(&self, batch: u64, spec: DeviceSpec) -> Result<Simulated, Error> {
        if let Some(known) = self.known(batch, &spec) {
            return Ok(known.as_ref().clone());
        }
        if let Some(Err(error)) = self.outcome(batch, &spec) {
            return Err(error);
        }
        let run = self.program.simulate(batch, spec.clone());
        if let Err(error @ Error::NoKernel(_)) = &run {
            self.remember(batch, &spec, Err(error.clone()));
        }
        let simulated = run?;
        let mut latest = self.latest.lock().expect("nothing panics with it");
        latest.truncate(REMEMBERED - 1);
        latest.push_front((batch, Arc::new(simulated.clone())));
        Ok(simulated)
    }

    fn sketch(&self, batch: u64, spec: DeviceSpec) -> Result<Recording, Error> {
        self.program.sketch(batch, spec)
    }

    fn accepts(&self, batch: u64) -> bool {
        self.program.accepts(batch)
    }

    fn only(&self) -> Option<Tuning> {
        self.program.only()
    }
}
