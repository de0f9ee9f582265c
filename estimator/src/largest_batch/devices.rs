//! The largest batches of several jobs on many devices, with as few runs as possible.
//!
//! Devices with the same kernels make the same calls. So the search runs a job on the one with the most
//! memory and compares the run with the prediction from two small batches: if every call and every byte
//! agree, it replays the calls in the memory of the others.

use std::sync::{Mutex, OnceLock};

use recording::Recording;
use serde::{Deserialize, Serialize};

use super::proposer::{Learned, Proposer};
use super::search::Search;
use super::validation::Validation;
use super::{LargestFit, Remembering, largest_fit};
use crate::Error;
use crate::card::DeviceSpec;
use crate::device_groups::{group_by_kernels, group_identical};
use crate::job::Program;
use crate::parallel::parallel_map;
use crate::run_kind::Required;

/// How a largest batch was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The step ran on the card, with this batch and with the next.
    Simulation,
    /// The step ran with tuned kernels on a card with more memory and the same kernels, and each call and size was as predicted
    /// from two small batches. The predicted calls of this batch and of the next were then replayed (for a
    /// single sample, the calls of a recorded run). The other runs that have to complete were made on the card.
    Replay,
}

/// Observes the search of [`largest_fits`]; jobs and devices are numbered as in its arguments.
pub trait BatchObserver: Sync {
    /// The search for the largest batch of `job` on `device` begins.
    fn begins(&self, job: usize, device: usize);

    /// The largest batch of `job` on `device` was `found`.
    fn found(&self, job: usize, device: usize, found: &CellResult);
}

/// The largest batch of one job on one device: a cell of the table that [`largest_fits`] fills.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellResult {
    /// The largest batch; or why there is none to find.
    pub fit: Result<LargestFit, Error>,
    /// How it was found.
    pub method: Method,
}

/// Finds the largest batch of each of `jobs` on each of `devices`, whose memory must be limited. The result is indexed
/// `[job][device]`, in the order of the arguments: a row for each job, and in it a cell for each device. The runs
/// themselves are not kept, and a job is dropped once its answers are found.
///
/// Each core works on another job, or on another device if there are fewer jobs than cores.
pub fn largest_fits<P, J>(
    jobs: J,
    devices: &[DeviceSpec],
    observer: &impl BatchObserver,
) -> Vec<Vec<CellResult>>
where
    P: Program,
    J: IntoIterator<Item = P, IntoIter: ExactSizeIterator + Send>,
{
    parallel_map(jobs.into_iter().enumerate(), |(index, program)| {
        let Some(reference) = devices.iter().max_by_key(|device| memory(device)) else {
            return Vec::new();
        };
        let job = Job::new(&program, reference);
        let row = Row {
            job: index,
            observer,
            answers: Mutex::default(),
        };
        let groups = Group::all(&job, devices);
        parallel_map(&groups, |group| {
            row.begins(&group.first);
            let fit = group.calibration().first.clone();
            let found = CellResult {
                fit,
                method: Method::Simulation,
            };
            row.found(&group.first, &found);
        });
        // Of each group, the devices with the most memory come first: see `Group::with`.
        let others = groups.iter().flat_map(|group| {
            let others = group.others.iter().rev();
            others.map(move |columns| (group, columns))
        });
        parallel_map(others.collect::<Vec<_>>(), |(group, columns)| {
            let mut validation = group.calibration().validation;
            for columns in group.with(columns) {
                row.begins(columns);
                row.found(columns, &group.find(columns, &mut validation));
            }
        });
        row.into_answers()
    })
}

/// The answers for a job, as they are found.
struct Row<'a, O> {
    /// The number of the job.
    job: usize,
    observer: &'a O,
    answers: Mutex<Vec<(usize, CellResult)>>,
}

impl<O: BatchObserver> Row<'_, O> {
    fn begins(&self, columns: &Identical) {
        for column in columns {
            self.observer.begins(self.job, *column);
        }
    }

    fn found(&self, columns: &Identical, found: &CellResult) {
        let mut answers = self.answers.lock().expect("no answer is half done");
        for column in columns {
            self.observer.found(self.job, *column, found);
            answers.push((*column, found.clone()));
        }
    }

    /// The answers in the order of the devices.
    fn into_answers(self) -> Vec<CellResult> {
        let mut answers = self.answers.into_inner().expect("no answer is half done");
        answers.sort_by_key(|(column, _)| *column);
        answers.into_iter().map(|(_, found)| found).collect()
    }
}

/// The total memory, by which devices are ordered.
fn memory(device: &DeviceSpec) -> u64 {
    device.card.total.map_or(u64::MAX, |total| total.0)
}

/// A job, and what it learned for all its devices.
struct Job<'a, P> {
    program: &'a P,
    /// The device with the most memory, on which the job learns how it grows.
    reference: &'a DeviceSpec,
    learned: OnceLock<Result<Learned, Error>>,
}

impl<'a, P: Program> Job<'a, P> {
    fn new(program: &'a P, reference: &'a DeviceSpec) -> Self {
        Self {
            program,
            reference,
            learned: OnceLock::new(),
        }
    }

    fn learned(&self) -> &Result<Learned, Error> {
        let learn = || Learned::of(self.program, self.reference);
        self.learned.get_or_init(learn)
    }
}

/// Indices of devices that differ in nothing but their name.
type Identical = Vec<usize>;

/// Devices with the same kernels: a job makes the same calls on all of them.
struct Group<'a, P> {
    job: &'a Job<'a, P>,
    /// All devices.
    devices: &'a [DeviceSpec],
    /// The devices with the most memory; the job runs on one of them.
    first: Identical,
    others: Vec<Identical>,
    calibration: OnceLock<Calibration<'a, P>>,
}

/// The results of a run on the device with the most memory of a group.
struct Calibration<'a, P> {
    /// The largest batch on that device.
    first: Result<LargestFit, Error>,
    /// Proposes an answer for the other devices.
    proposer: Proposer<'a, P>,
    validation: Validation,
}

impl<'a, P: Program> Group<'a, P> {
    /// The groups of devices with the same kernels.
    fn all(job: &'a Job<'a, P>, devices: &'a [DeviceSpec]) -> Vec<Self> {
        let spec = |column: &usize| devices[*column].clone();
        let columns = group_identical(0..devices.len(), spec);
        let groups = group_by_kernels(columns, |columns| spec(&columns[0]));
        let group = |mut group: Vec<Identical>| {
            group.sort_by_key(|columns| memory(&devices[columns[0]]));
            Self {
                job,
                devices,
                first: group.pop().expect("each group has a device"),
                others: group,
                calibration: OnceLock::new(),
            }
        };
        groups.into_iter().map(group).collect()
    }

    fn device(&self, columns: &Identical) -> &'a DeviceSpec {
        &self.devices[columns[0]]
    }

    fn calibration(&self) -> &Calibration<'a, P> {
        self.calibration.get_or_init(|| self.calibrate())
    }

    /// The devices that are filled when it is the turn of `columns`: mostly these alone. If the first run did
    /// not match the prediction, the turn of the largest of `others` fills them all, those with more memory
    /// first, so that the first run that matches serves the devices after it.
    fn with<'b>(&'b self, columns: &'b Identical) -> Vec<&'b Identical> {
        let Calibration {
            proposer,
            validation,
            ..
        } = self.calibration();
        let may_be_predicted = proposer.predictor().is_some() && !validation.is_any();
        match self.others.last() {
            _ if !may_be_predicted => vec![columns],
            Some(most) if most == columns => self.others.iter().rev().collect(),
            _ => Vec::new(),
        }
    }

    /// Finds the largest batch on a device of `columns`, one of `others`: by replay if `validation` allows
    /// that, else by running the step, which adds to `validation`.
    fn find(&self, columns: &Identical, validation: &mut Validation) -> CellResult {
        let program = self.job.program;
        let device = self.device(columns);
        let proposer = &self.calibration().proposer;
        let Some(predictor) = proposer.predictor() else {
            let mut fit = largest_fit(program, proposer, device);
            take_tuned_run(&mut fit);
            return CellResult {
                fit,
                method: Method::Simulation,
            };
        };
        let tuned = Required::Tuned.on(device);
        let replayed = |batch| {
            let covered = validation.covers(predictor, batch);
            covered.then(|| predictor.refused(batch, &tuned))
        };
        let program = Remembering::new(program);
        let search = Search::new(&program, proposer, device).with_replays(&replayed);
        let mut fit = search.find();
        let method = match take_tuned_run(&mut fit) {
            None => Method::Replay,
            Some((batch, recording)) => {
                validation.add(predictor.scaling(), batch, &recording);
                Method::Simulation
            }
        };
        CellResult { fit, method }
    }

    fn calibrate(&self) -> Calibration<'a, P> {
        let device = self.device(&self.first);
        let program = Remembering::new(self.job.program);
        let proposer = match self.proposer(&program, device) {
            Ok(proposer) => proposer,
            Err(error) => return Calibration::failed(&error),
        };
        let mut first = Search::new(&program, &proposer, device).find();
        let run = take_tuned_run(&mut first);
        let mut validation = Validation::default();
        if let (Some(predictor), Some((batch, recording))) = (proposer.predictor(), &run) {
            validation.add(predictor.scaling(), *batch, recording);
        }
        Calibration {
            first,
            proposer,
            validation,
        }
    }

    /// What proposes for devices with the kernels of `device`: what the reference taught, where the step does on `device` as that
    /// predicts, else what the step itself teaches on `device`.
    fn proposer(
        &self,
        program: &Remembering<P>,
        device: &DeviceSpec,
    ) -> Result<Proposer<'a, P>, Error> {
        let job = self.job;
        let same_kernels = device.kernel_group() == job.reference.kernel_group();
        match job.learned() {
            Err(error) if same_kernels => Err(error.clone()),
            Err(_) => Proposer::learn(job.program, device),
            Ok(learned) => {
                let common = Proposer::new(job.program, learned, device);
                match same_kernels || common.is_right_on(program, device)? {
                    true => Ok(common),
                    false => Proposer::learn(job.program, device),
                }
            }
        }
    }
}

impl<P: Program> Calibration<'_, P> {
    fn failed(error: &Error) -> Self {
        Self {
            first: Err(error.clone()),
            proposer: Proposer::without_knowledge(),
            validation: Validation::default(),
        }
    }
}

/// Takes the runs of the largest batch out of `found`, which are large and not needed afterwards. Returns the batch and the
/// recording of the run with tuned kernels, if there was one.
fn take_tuned_run(found: &mut Result<LargestFit, Error>) -> Option<(u64, Recording)> {
    let fit = found.as_mut().ok()?;
    let mut runs = std::mem::take(&mut fit.runs).into_iter();
    let (_, tuned) = runs.find(|(required, _)| *required == Required::Tuned)?;
    Some((fit.batch, tuned.recording))
}
