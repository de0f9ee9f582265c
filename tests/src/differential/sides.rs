//! The two sides of a case, the real runtime and the simulated card: how each runs the step, and how they are compared.

use std::time::Duration;

use estimator::{
    Bytes, DeviceSpec, Gpu, Program, Refusals, RunKind, Runtime, Simulated, TrainingJob, Tuning,
};
use fit_check::comparison::Figures;
use fit_check::counting_driver::{Conditions, CountingDriver};
use fit_check::measure::{DeviceName, Mode, Outcome, Setup, Training};
use fit_check::measured_job;
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
        let side = |device| SimulatedSide::of(self.simulate(program, device));
        let usual = side(device.clone());
        // How far the device's thread is behind can decide whether a step fits, and which pages it takes.
        let other = match usual.explains(measured) {
            true => None,
            false => RunKind::others(&device)
                .map(side)
                .find(|other| other.explains(measured)),
        };
        let other_run = other.is_some();
        let simulated = other.unwrap_or(usual);
        CaseOutcome {
            quantities: simulated.differences(&measured.figures),
            real: measured.ended.clone(),
            simulated: simulated.ended,
            other_run,
            tuner_requests: measured.tuner_requests,
        }
    }

    /// The step. burn searches only once for what it can fuse in it, in however many simulations.
    pub(super) fn program(&self) -> TrainingJob<'_> {
        measured_job(&self.model, &self.job)
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
    /// The figures of the phases that it completed; none if the run failed.
    figures: Option<Figures>,
}

impl SimulatedSide {
    fn of(simulated: Result<Simulated, estimator::Error>) -> Self {
        match simulated {
            Err(error) => Self {
                ended: Ended::Failed(error.to_string()),
                figures: None,
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
                    figures: Some(figures),
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

    fn differences(&self, measured: &Figures) -> Vec<(Quantity, Tally)> {
        let Some(figures) = &self.figures else {
            return Vec::new();
        };
        let mut tallies = [Tally::default(); 3];
        for (estimated, measured) in figures.zip_phases(measured) {
            let most = (estimated.peak_reserved_bytes, measured.peak_reserved_bytes);
            tallies[0].add(estimated.live_bytes, measured.live_bytes);
            tallies[1].add(estimated.reserved_bytes, measured.reserved_bytes);
            if let (Some(estimated), Some(measured)) = most {
                tallies[2].add(estimated, measured);
            }
        }
        let quantities = [Quantity::InUse, Quantity::Reserved, Quantity::MostReserved];
        quantities.into_iter().zip(tallies).collect()
    }
}
