//! The largest batches of several jobs on many devices, with as few runs as possible.
//!
//! Devices with the same kernels make the same calls. So the search runs a job on the one with the most
//! memory and compares the run with the prediction from two small batches: if every call and every byte
//! agree, it replays the calls in the memory of the others.

use std::sync::{Arc, Mutex, OnceLock};

use serde::{Deserialize, Serialize};

use super::{LargestFit, Prediction, Predictor, Scaling, largest_fit, largest_fit_near};
use crate::Error;
use crate::card::DeviceSpec;
use crate::device_groups::{group_by_kernels, group_identical};
use crate::job::Program;
use crate::parallel::parallel_map;
use crate::record::Recording;

/// How a largest batch was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The step ran on the card, with this batch and with the next.
    Simulation,
    /// The step ran on a card with more memory and the same kernels, and each call and size was as predicted
    /// from two small batches. The predicted calls of this batch and of the next were then replayed (for a
    /// single sample, the calls of a recorded run).
    Replay,
}

/// Observes the search of [`largest_fits`]; jobs and devices are numbered as in its arguments.
pub trait BatchObserver: Sync {
    /// The search for the largest batch of `job` on `device` begins.
    fn begins(&self, job: usize, device: usize);

    /// The largest batch of `job` on `device` was `found`.
    fn found(&self, job: usize, device: usize, found: &Found);
}

/// The largest batch of a job on a device, and how it was found.
pub type Found = (Result<LargestFit, Error>, Method);

/// Finds the largest batch of each of `jobs` on each of `devices`, whose memory must be limited: job by job,
/// device by device. The runs themselves ([`LargestFit::at_max`]) are not kept.
///
/// Each core works on another device. Once a job is [interrupted](Program::interrupted), its remaining
/// answers are [`Error::Interrupted`].
pub fn largest_fits<P: Program + Sync>(
    jobs: &[P],
    devices: &[DeviceSpec],
    observer: &impl BatchObserver,
) -> Vec<Vec<Found>> {
    let Some(reference) = devices.iter().max_by_key(|device| memory(device)) else {
        return jobs.iter().map(|_| Vec::new()).collect();
    };
    let jobs: Vec<_> = jobs.iter().map(|job| Job::new(job, reference)).collect();
    let groups: Vec<_> = Group::all(&jobs, devices).collect();
    let answers: Vec<_> = jobs.iter().map(|_| Mutex::new(Vec::new())).collect();
    let fill = |group: &Group<P>, columns: &Identical| {
        let found = |columns: &Identical, found: Found| {
            let mut row = answers[group.job_index]
                .lock()
                .expect("no answer is half done");
            for column in columns {
                observer.found(group.job_index, *column, &found);
                row.push((*column, found.clone()));
            }
        };
        let begins = |columns: &Identical| {
            for column in columns {
                observer.begins(group.job_index, *column);
            }
        };
        if *columns == group.first {
            begins(columns);
            let fit = group.calibration().first.clone();
            return found(columns, (fit, Method::Simulation));
        }
        let mut validation = group.calibration().validation.clone();
        for columns in group.with(columns) {
            begins(columns);
            found(columns, group.find(columns, &mut validation));
        }
    };
    parallel_map(in_order(&jobs, &groups), |work| match work {
        Work::Learn(job) => {
            job.scaling();
        }
        Work::Fill(group, columns) => fill(group, columns),
    });
    let answers = answers.into_iter().map(|row| {
        let mut row = row.into_inner().expect("no answer is half done");
        row.sort_by_key(|(column, _)| *column);
        row.into_iter().map(|(_, found)| found).collect()
    });
    answers.collect()
}

/// The total memory, by which devices are ordered.
fn memory(device: &DeviceSpec) -> u64 {
    device.card.total.map_or(u64::MAX, |total| total.0)
}

/// The next work for a core.
enum Work<'a, P> {
    /// Learn how a job grows with the batch.
    Learn(&'a Job<'a, P>),
    /// Find the largest batch on these devices.
    Fill(&'a Group<'a, P>, &'a Identical),
}

/// The order of the work, job by job. Learning how a job grows comes one job before the runs that are
/// compared with it, and these come one job before the devices that are filled by replay, so that no core
/// waits. Of the latter, those with the most memory come first: see [`Group::with`].
fn in_order<'a, P>(jobs: &'a [Job<'a, P>], groups: &'a [Group<'a, P>]) -> Vec<Work<'a, P>> {
    let mut order = Vec::new();
    let mut lessons = jobs.iter().map(Work::Learn);
    let mut waiting = Vec::new();
    order.extend(lessons.next());
    for row in groups.chunk_by(|a, b| a.job_index == b.job_index) {
        order.extend(lessons.next());
        order.extend(row.iter().map(|group| Work::Fill(group, &group.first)));
        order.append(&mut waiting);
        for group in row {
            let others = group.others.iter().rev();
            waiting.extend(others.map(|columns| Work::Fill(group, columns)));
        }
    }
    order.append(&mut waiting);
    order
}

/// How a job grows with the batch; `None` if it does not grow evenly.
type ScalingResult = Result<Option<Arc<Scaling>>, Error>;

/// A job, and what it learned for all its devices.
struct Job<'a, P> {
    program: &'a P,
    /// The device with the most memory, on which the job learns how it grows.
    reference: &'a DeviceSpec,
    scaling: OnceLock<ScalingResult>,
}

impl<'a, P: Program> Job<'a, P> {
    fn new(program: &'a P, reference: &'a DeviceSpec) -> Self {
        Self {
            program,
            reference,
            scaling: OnceLock::new(),
        }
    }

    fn scaling(&self) -> &ScalingResult {
        self.scaling.get_or_init(|| self.learn(self.reference))
    }

    fn learn(&self, device: &DeviceSpec) -> ScalingResult {
        Ok(Scaling::of(self.program, device)?.map(Arc::new))
    }

    fn predictor(&self, scaling: &Arc<Scaling>, device: &DeviceSpec) -> Predictor<'a, P> {
        Predictor::new(self.program, scaling.clone(), device.without_limit())
    }
}

/// Indices of devices that differ in nothing but their name.
type Identical = Vec<usize>;

/// Devices with the same kernels: a job makes the same calls on all of them.
struct Group<'a, P> {
    job_index: usize,
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
    predictor: Option<Predictor<'a, P>>,
    validation: Validation,
}

/// How far runs have confirmed a predictor.
#[derive(Clone, Default)]
struct Validation {
    /// The [share](Scaling::share) of the latest run.
    share: Option<f64>,
    /// The batch of the latest run that matched the prediction call by call: smaller batches count as
    /// predicted too, down to the recorded ones.
    predicted: Option<u64>,
}

impl<'a, P: Program> Group<'a, P> {
    /// The groups of devices with the same kernels, job by job.
    fn all(jobs: &'a [Job<'a, P>], devices: &'a [DeviceSpec]) -> impl Iterator<Item = Self> {
        let spec = |column: &usize| devices[*column].clone();
        let columns = group_identical(0..devices.len(), spec);
        let kinds = group_by_kernels(columns, move |columns| spec(&columns[0]));
        jobs.iter().enumerate().flat_map(move |(job_index, job)| {
            kinds.clone().into_iter().map(move |mut kind| {
                kind.sort_by_key(|columns| memory(&devices[columns[0]]));
                Self {
                    job_index,
                    job,
                    devices,
                    first: kind.pop().expect("each kind has a device"),
                    others: kind,
                    calibration: OnceLock::new(),
                }
            })
        })
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
            predictor,
            validation,
            ..
        } = self.calibration();
        let may_be_predicted = predictor.is_some() && validation.predicted.is_none();
        match self.others.last() {
            _ if !may_be_predicted => vec![columns],
            Some(most) if most == columns => self.others.iter().rev().collect(),
            _ => Vec::new(),
        }
    }

    /// Finds the largest batch on a device of `columns`, one of `others`: by replay if `validation` allows
    /// that, else by running the step, which adds to `validation`.
    fn find(&self, columns: &Identical, validation: &mut Validation) -> Found {
        let program = self.job.program;
        let device = self.device(columns);
        let predictor = self.calibration().predictor.as_ref();
        let Some(predictor) = predictor.filter(|_| !program.interrupted()) else {
            let mut found = largest_fit(program, None, device);
            take_run(&mut found);
            return (found, Method::Simulation);
        };
        let predicted = predictor.predicted(device, validation.share);
        let covered = validation.covers(predictor, &predicted)
            && predictor.fits_full_queue(predicted.batch, device);
        let refused = covered.then(|| predictor.refused(&predicted, device));
        match refused.flatten() {
            Some(refused) => {
                let fit = LargestFit {
                    batch: predicted.batch,
                    at_max: None,
                    next: predicted.next,
                    refused,
                };
                (Ok(fit), Method::Replay)
            }
            None => {
                let mut found = largest_fit_near(program, predicted.batch, device);
                if let Some((batch, recording)) = take_run(&mut found) {
                    validation.add(predictor.scaling(), batch, &recording, device);
                }
                (found, Method::Simulation)
            }
        }
    }

    fn calibrate(&self) -> Calibration<'a, P> {
        let device = self.device(&self.first);
        let job = self.job;
        let same_kernels = device.kernel_group() == job.reference.kernel_group();
        let scaling = job.scaling();
        if let (true, Err(error)) = (same_kernels, scaling) {
            return Calibration::failed(error);
        }
        let common = scaling.as_ref().ok().and_then(Option::as_ref);
        let common = common.map(|scaling| job.predictor(scaling, device));
        let mut first = largest_fit(job.program, common.as_ref(), device);
        let run = take_run(&mut first);
        let validate = |predictor: &Predictor<P>| {
            let mut validation = Validation::default();
            if let Some((batch, recording)) = &run {
                validation.add(predictor.scaling(), *batch, recording, device);
            }
            validation
        };
        let of_common = common.as_ref().map(validate).unwrap_or_default();
        // Nothing has to be learned for a device that is alone in its group.
        if same_kernels || of_common.predicted.is_some() || self.others.is_empty() {
            return Calibration {
                first,
                predictor: common,
                validation: of_common,
            };
        }
        match job.learn(device) {
            Ok(own) => {
                let own = own.map(|scaling| job.predictor(&scaling, device));
                Calibration {
                    first,
                    validation: own.as_ref().map(validate).unwrap_or_default(),
                    predictor: own,
                }
            }
            Err(error) => Calibration::failed(&error),
        }
    }
}

impl<P> Calibration<'_, P> {
    fn failed(error: &Error) -> Self {
        Self {
            first: Err(error.clone()),
            predictor: None,
            validation: Validation::default(),
        }
    }
}

impl Validation {
    /// Whether `predicted` needs no run: a recording covers both batches, and a run with as many samples or
    /// more was as predicted.
    fn covers<P: Program>(&self, predictor: &Predictor<P>, predicted: &Prediction) -> bool {
        // With no sample there is nothing to run.
        let known = |batch| batch == 0 || predictor.knows(batch);
        let validated = self.predicted.is_some_and(|most| predicted.next <= most);
        validated && known(predicted.batch) && known(predicted.next)
    }

    /// Adds a run of the largest `batch` on `device`.
    fn add(&mut self, scaling: &Scaling, batch: u64, recording: &Recording, device: &DeviceSpec) {
        self.share = scaling.share(batch, device);
        if scaling.matches(batch, recording) {
            self.predicted = Some(batch);
        }
    }
}

/// Takes the run of the largest batch out of `found`: the batch and its recording, which is large and not
/// needed afterwards.
fn take_run(found: &mut Result<LargestFit, Error>) -> Option<(u64, Recording)> {
    let fit = found.as_mut().ok()?;
    Some((fit.batch, fit.at_max.take()?.recording))
}
