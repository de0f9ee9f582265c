//! The two sides of a case, the real runtime and the simulated card: how each runs the step, and how they are compared.

use std::time::Duration;

use estimator::{
    Bytes, DeviceSpec, Gpu, Program, QueueLag, Refusals, Runtime, Simulated, TrainingJob, Tuning,
};
use fit_check::comparison::Figures;
use fit_check::counting_driver::{Conditions, CountingDriver};
use fit_check::measure::{DeviceName, Mode, Outcome, Setup, Training};
use fit_check::training_job;
use model_zoo::{Job, Model};

use super::case::{Case, CaseModel};
use super::outcome::{CaseOutcome, Ended, MeasuredRun, Quantity, Tally, all_equal};

/// How long a step may take on the real runtime.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A case whose network accepts its request.
pub(super) struct AcceptedCase<'a> {
    case: &'a Case,
    model: CaseModel,
    job: Job,
}

impl Case {
    /// The case, if its network accepts its request.
    pub(super) fn accepted(&self) -> anyhow::Result<Option<AcceptedCase<'_>>> {
        let model = self.network.model()?;
        let job = self.request.resolve(&model);
        Ok(job
            .ok()
            .filter(|job| model.check(job).is_ok())
            .map(|job| AcceptedCase {
                case: self,
                model,
                job,
            }))
    }

    /// Trains the step on the real runtime; none if the network does not accept the request.
    ///
    /// # Errors
    ///
    /// The counting driver or the child process could not be started.
    pub fn measure(&self) -> anyhow::Result<Option<MeasuredRun>> {
        let accepted = self.accepted()?;
        let run = accepted.map(|case| case.real_side()?.measure(None).map(|(run, _)| run));
        run.transpose()
    }

    /// Simulates the step, and compares it with `measured`.
    ///
    /// # Errors
    ///
    /// The network does not accept the request.
    pub fn compare(&self, measured: &MeasuredRun) -> anyhow::Result<CaseOutcome> {
        match self.accepted()? {
            Some(case) => Ok(case.compare(&case.program(), measured, None)),
            None => anyhow::bail!("the network does not accept the request"),
        }
    }
}

impl AcceptedCase<'_> {
    /// The card in the catalogue, with the memory of the case.
    fn card(&self) -> anyhow::Result<DeviceSpec> {
        let card = Gpu::find(&self.case.gpu)?.spec(Runtime::Cuda);
        let Some(percent) = self.case.memory_percent else {
            return Ok(card);
        };
        let needed = match self.simulate(&self.program(), card.without_limit()) {
            Ok(simulated) => simulated.reserved,
            Err(_) => return Ok(card),
        };
        Ok(card.with_free(Bytes(needed.0 / 100 * u64::from(percent))))
    }

    /// Simulates `program`, the step, and compares it with `measured`; the card refuses `refusals` although it
    /// has room.
    pub(super) fn compare(
        &self,
        program: &TrainingJob,
        measured: &MeasuredRun,
        refusals: Option<Refusals>,
    ) -> CaseOutcome {
        let mut device = measured.description.spec(Runtime::Cuda);
        if let Some(free) = measured.free {
            device = device.with_free(free);
        }
        device.simulation.refusals = refusals;
        let mut simulated = SimulatedSide::of(self.simulate(program, device.clone()));
        let in_place = |simulated: &mut SimulatedSide| {
            let mut device = device.clone();
            let mut usual = None;
            if refusals.is_some() && simulated.ended == Ended::OutOfMemory {
                // Up to the first request that it refuses, a card is like one that refuses nothing. A run with other
                // operands makes other requests: refused this one, it can end in another phase, or train.
                device.simulation.refusals = None;
                usual = self.simulate(program, device.clone()).ok();
            }
            let simulate = |device| self.simulate(program, device);
            simulated.add_in_place(usual.as_ref(), measured, &device, simulate);
        };
        // Where the pages are right, burn overwrote other operands.
        let only_operands = !simulated.explains(measured) && simulated.has_pages_of(measured);
        if only_operands {
            in_place(&mut simulated);
        }
        // A queue lag can decide whether a step fits, and which pages it takes.
        let mut lags = QueueLag::SAMPLES.into_iter();
        let mut with_lag = false;
        while !simulated.explains(measured)
            && let Some(lag) = lags.next()
        {
            let other = self.simulate(program, device.clone().with_queue_lag(lag));
            with_lag |= simulated.add(SimulatedSide::of(other), measured);
        }
        let also_operands =
            !only_operands && !simulated.explains(measured) && simulated.ended == measured.ended;
        if also_operands {
            in_place(&mut simulated);
        }
        CaseOutcome {
            quantities: simulated.differences(&measured.figures),
            real: measured.ended.clone(),
            simulated: simulated.ended,
            with_lag,
            not_in_place: only_operands || also_operands,
            tuner_requests: measured.tuner_requests,
        }
    }

    /// The step. burn searches only once for what it can fuse in it, in however many simulations.
    pub(super) fn program(&self) -> TrainingJob<'_> {
        training_job(&self.model, &self.job)
    }

    fn simulate(
        &self,
        program: &TrainingJob,
        device: DeviceSpec,
    ) -> Result<Simulated, estimator::Error> {
        let device = device.with_tuning(self.case.tuning);
        let device = match self.case.fused {
            true => device,
            false => device.unfused(),
        };
        program.simulate(self.job.batch as u64, device)
    }

    /// A card of CUDA's own runtime for the step.
    pub(super) fn real_side(&self) -> anyhow::Result<RealSide<'_>> {
        let driver = CountingDriver::new(&[self.card()?], Conditions::default())?;
        Ok(RealSide {
            accepted: self,
            setup: Setup {
                device: "cuda".parse::<DeviceName>()?,
                timeout: TIMEOUT,
                counting: Some(driver),
            },
        })
    }
}

/// A card of CUDA's own runtime on which a step is trained, in a process for each time.
pub(super) struct RealSide<'a> {
    accepted: &'a AcceptedCase<'a>,
    setup: Setup,
}

impl RealSide<'_> {
    /// Trains the step on the real runtime, whose driver refuses `refusals` although it has room. Also returns
    /// how many allocations the process requested.
    pub(super) fn measure(&self, refusals: Option<Refusals>) -> anyhow::Result<(MeasuredRun, u64)> {
        let AcceptedCase { case, job, .. } = self.accepted;
        let setup = &self.setup;
        if let Some(driver) = &setup.counting {
            driver.set_conditions(Conditions {
                launch_delay: Duration::from_micros(case.launch_delay_us),
                refusals,
            })?;
        }
        let training = Training {
            model: case.network.text(),
            request: job.request(),
            mode: Mode::Real,
            sampled: false,
            limit: None,
            tuning: case.tuning,
            fused: case.fused,
        };
        let run = setup.measure(training, &mut |_| {})?;
        // While kernels are tuned that are known beforehand, the driver refuses nothing.
        let first = run.marks.first().and_then(|mark| mark.journal);
        let begin = match (case.tuning, first) {
            (Tuning::Warm, Some(span)) => span.begin,
            _ => 0,
        };
        let requests = match &setup.counting {
            Some(driver) => driver.journal()?.requests(begin),
            None => 0,
        };
        let measured = MeasuredRun {
            figures: Figures::measured(&run, &[]),
            tuner_requests: run.tuner_requests().unwrap_or(0),
            ended: match run.ending {
                Outcome::Trained => Ended::Trained,
                Outcome::OutOfMemory(_) => Ended::OutOfMemory,
                other => Ended::Failed(other.to_string()),
            },
            description: run.device.description,
            free: run.device.free,
        };
        Ok((measured, requests))
    }
}

/// What the simulated card did: how it ended, and its figures.
struct SimulatedSide {
    ended: Ended,
    /// The run without a queue lag, or with the lag that explains how the real side ended, and its figures, widened
    /// by other runs; none if the run failed.
    run: Option<(Simulated, Figures)>,
}

impl SimulatedSide {
    fn of(simulated: Result<Simulated, estimator::Error>) -> Self {
        match simulated {
            Err(error) => Self {
                ended: Ended::Failed(error.to_string()),
                run: None,
            },
            Ok(simulated) => {
                let mut figures = Figures::estimated(&simulated, None);
                let ended = match simulated.outcome() {
                    Ok(()) => Ended::Trained,
                    Err(_) => {
                        // The card has no limit from the refused allocation on, so the figures of that phase
                        // are not those of a real card.
                        figures.phases.pop();
                        Ended::OutOfMemory
                    }
                };
                Self {
                    ended,
                    run: Some((simulated, figures)),
                }
            }
        }
    }

    /// Whether this is how the real side ended and what it measured, in the phases that both completed.
    fn explains(&self, measured: &MeasuredRun) -> bool {
        match self.ended {
            Ended::Failed(_) => matches!(measured.ended, Ended::Failed(_)),
            Ended::Trained | Ended::OutOfMemory => {
                let quantities = self.differences(&measured.figures);
                self.ended == measured.ended && all_equal(&quantities)
            }
        }
    }

    /// Whether it ended as the real side did, with as many bytes reserved at every moment that is known.
    fn has_pages_of(&self, measured: &MeasuredRun) -> bool {
        let figures = self.run.as_ref().map(|(_, figures)| figures);
        self.ended == measured.ended
            && figures.is_some_and(|figures| figures.covers_reserved(&measured.figures))
    }

    /// Takes what `other`, a run with a queue lag, adds to what is possible; returns whether it ended as the
    /// real side did, and this one did not.
    fn add(&mut self, other: Self, measured: &MeasuredRun) -> bool {
        if self.ended != measured.ended && other.ended == measured.ended {
            *self = other;
            return true;
        }
        if self.ended == other.ended
            && let (Some((_, figures)), Some((_, other))) = (&mut self.run, &other.run)
        {
            figures.widen(other);
        }
        false
    }

    /// Takes what is possible if burn does not overwrite some operands that it does in the run `usual` on `device`; none
    /// is this run.
    fn add_in_place(
        &mut self,
        usual: Option<&Simulated>,
        measured: &MeasuredRun,
        device: &DeviceSpec,
        simulate: impl FnMut(DeviceSpec) -> Result<Simulated, estimator::Error>,
    ) {
        if let Some((run, figures)) = &mut self.run {
            figures.widen_in_place(usual.unwrap_or(run), &measured.figures, device, simulate);
        }
    }

    fn differences(&self, measured: &Figures) -> Vec<(Quantity, Tally)> {
        let Some((_, figures)) = &self.run else {
            return Vec::new();
        };
        let mut tallies = [Tally::default(); 4];
        for (estimated, measured) in figures.zip_phases(measured) {
            let (allocations, live) = (measured.allocations, measured.live_bytes);
            tallies[0].add(estimated.allocations_near(allocations), allocations);
            tallies[1].add(estimated.live_near(live).0, live.0);
            let reserved = measured.reserved_bytes;
            tallies[2].add(estimated.reserved_near(reserved).0, reserved.0);
            if let Some(most) = measured.peak_reserved_bytes
                && let Some(near) = estimated.peak_reserved_near(most)
            {
                tallies[3].add(near.0, most.0);
            }
        }
        let quantities = [
            Quantity::Allocations,
            Quantity::InUse,
            Quantity::Reserved,
            Quantity::MostReserved,
        ];
        quantities.into_iter().zip(tallies).collect()
    }
}
