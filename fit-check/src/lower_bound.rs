//! The answer for weights whose network is not known: the least memory that any training step with them
//! takes.

use estimator::record::Event;
use estimator::{Analysis, Breakdown, Bytes, Phase, Program, Simulated, parallel_map};
use model_zoo::{Job, Model, Precision, Weights};
use schemars::JsonSchema;
use serde::Serialize;

use crate::job_info::{GpuName, JobInfo};
use crate::model_source::{AnyModel, Checkpoint, Origin, Sum};
use crate::resolve::{Card, ResolvedRequest};
use crate::step::{simulate_step, training_job};
use crate::user_error::UserError;

/// A count of tensors of a file.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Part {
    /// What they have in common: a type, or the beginning of their names.
    pub name: String,
    /// The number of tensors.
    pub tensors: u64,
    /// The elements of all of them.
    pub parameters: u64,
    /// The bytes of all of them in the file.
    pub bytes: Bytes,
}

impl From<(String, Sum)> for Part {
    fn from((name, sum): (String, Sum)) -> Self {
        Self {
            name,
            tensors: sum.tensors,
            parameters: sum.elements,
            bytes: sum.bytes,
        }
    }
}

/// The memory in use when the backward pass of a step has ended, without activations.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct Held {
    /// Weights, trained and frozen.
    pub weights_bytes: Bytes,
    /// Gradients.
    pub gradients_bytes: Bytes,
    /// Optimizer state, without the fp32 copies.
    pub optimizer_bytes: Bytes,
    /// The fp32 copies of 16-bit weights.
    pub master_bytes: Bytes,
    /// Running statistics and constants.
    pub buffers_bytes: Bytes,
    /// Activations: not known without the network.
    pub activations_bytes: Option<Bytes>,
}

/// Whether weights fit on a card.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Bound {
    /// The card.
    pub gpu: GpuName,
    /// False if not even a step without activations fits. None if that fits, since the activations are not known.
    pub fits: Option<bool>,
    /// The memory of the card above `at_least_bytes`; negative if it has less.
    pub headroom_bytes: i64,
    /// The allocation that the card refused in a step without activations, although it has `at_least_bytes`: burn's pools
    /// need more than what is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer of `estimate` for weights alone.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct LowerBound {
    /// The job.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// Why the configuration beside the weights could not be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
    /// The tensors of the file by type.
    pub dtypes: Vec<Part>,
    /// The tensors of the file by module.
    pub modules: Vec<Part>,
    /// Elements of trained weights.
    pub trainable: u64,
    /// Elements of frozen weights.
    pub frozen: u64,
    /// The memory in use after the backward pass.
    pub held: Held,
    /// The bytes in use at the peak of the optimizer's step: a lower bound for the whole step.
    pub at_least_bytes: Bytes,
    /// The verdict on each card.
    pub cards: Vec<Bound>,
}

impl LowerBound {
    /// Runs the step of `request` with the weights of `checkpoint`.
    ///
    /// # Errors
    ///
    /// The step failed, or a card does not offer its number format.
    pub fn of(request: &ResolvedRequest, checkpoint: &Checkpoint) -> Result<Self, UserError> {
        let figures = Figures::of(request, &request.job)?;
        // Mixed precision keeps a copy of four bytes for each trained parameter; the recording counts it as
        // optimizer state.
        let master = match request.job.precision {
            Precision::Mixed => Bytes(4 * figures.trainable),
            _ => Bytes::ZERO,
        };
        let mut cards = Vec::with_capacity(request.cards.len());
        for card in &request.cards {
            cards.push(bound(request, card, figures.at_least)?);
        }
        let held = figures.held;
        let parts = |sums: Vec<(String, Sum)>| sums.into_iter().map(Part::from).collect();
        Ok(Self {
            asked: JobInfo::new(request, None),
            unsupported: request.origin.unsupported.clone(),
            dtypes: parts(checkpoint.by_dtype()),
            modules: parts(checkpoint.by_module()),
            trainable: figures.trainable,
            frozen: figures.frozen,
            held: Held {
                weights_bytes: held.parameters,
                gradients_bytes: held.gradients,
                optimizer_bytes: held.optimizer.saturating_sub(master),
                master_bytes: master,
                buffers_bytes: held.buffers,
                activations_bytes: None,
            },
            at_least_bytes: figures.at_least,
            cards,
        })
    }

    /// Whether the step fits on every named card; none if that is not known.
    pub fn fits(&self) -> Option<bool> {
        match self.cards.iter().any(|card| card.fits == Some(false)) {
            true => Some(false),
            false if self.cards.is_empty() => Some(true),
            false => None,
        }
    }
}

/// A step with more tensors than this is not run with all of them: CubeCL's pools visit each slice of a page
/// at each allocation, so ten times the tensors take a hundred times as long.
const MANY: usize = 1_000;

/// More kinds of tensors than any trained network has; the step of each kind is run.
const MAX_KINDS: usize = 1_000;

/// The weights of `model`, if they have too many tensors to run the step with all of them.
fn many(model: &AnyModel) -> Option<&Weights> {
    match model {
        AnyModel::Weights(weights) if weights.tensors() > MANY => Some(weights),
        _ => None,
    }
}

/// The memory of a step with weights, without activations.
struct Figures {
    trainable: u64,
    frozen: u64,
    held: Breakdown,
    at_least: Bytes,
}

impl Figures {
    /// Runs the step of `job` with the weights of `request`.
    fn of(request: &ResolvedRequest, job: &Job) -> Result<Self, UserError> {
        let Some(weights) = many(&request.model) else {
            return Self::run(&request.model, job, request);
        };
        let kinds = weights.kinds(&job.freeze);
        if kinds.len() > MAX_KINDS {
            return Err(UserError::new(format!(
                "{} has {} tensors of {} shapes",
                weights.name(),
                weights.tensors(),
                kinds.len()
            ))
            .hint(format!(
                "no known network has more than {MAX_KINDS} shapes; check that the file holds weights"
            )));
        }
        Self::sum(&kinds, job, request)
    }

    fn run(
        model: &(impl Model + Sync),
        job: &Job,
        request: &ResolvedRequest,
    ) -> Result<Self, UserError> {
        let step = training_job(model, job);
        let simulated = step.simulate_unlimited(job.batch as u64, &request.unlimited())?;
        let analysis = Analysis::of(&simulated.recording);
        let peak = analysis.timeline.peak(&simulated.recording);
        Ok(Self {
            trainable: simulated.parameters.trainable,
            frozen: simulated.parameters.frozen,
            held: held(&simulated, &analysis),
            at_least: peak.map_or(Bytes::ZERO, |peak| peak.live),
        })
    }

    /// Runs the step with one tensor of each kind, and counts its memory once for each tensor of that kind.
    /// What the optimizer needs in between for single tensors is left out, so the sum is still a lower bound.
    fn sum(
        kinds: &[(Weights, u64)],
        job: &Job,
        request: &ResolvedRequest,
    ) -> Result<Self, UserError> {
        let figures = parallel_map(kinds, |(weights, _)| Self::run(weights, job, request));
        let mut all = Self {
            trainable: 0,
            frozen: 0,
            held: Breakdown::default(),
            at_least: Bytes::ZERO,
        };
        for ((_, count), one) in kinds.iter().zip(figures) {
            let one = one?;
            all.trainable += one.trainable * count;
            all.frozen += one.frozen * count;
            all.held.add(&one.held, *count);
        }
        all.at_least = all.held.total();
        Ok(all)
    }
}

/// The memory in use at the end of the last backward pass.
fn held(simulated: &Simulated, analysis: &Analysis) -> Breakdown {
    let recording = &simulated.recording;
    let last = recording
        .marks
        .iter()
        .rposition(|mark| mark.phase == Phase::Backward);
    let position = recording
        .events
        .iter()
        .position(|event| matches!(event, Event::Mark(mark) if Some(*mark as usize) == last));
    match position {
        Some(position) => analysis.breakdown(recording, position),
        None => Breakdown::default(),
    }
}

/// Whether the weights fit on `card`. If they are not larger than its memory, the step runs there, with that
/// memory as the limit, unless there are too many tensors.
fn bound(request: &ResolvedRequest, card: &Card, at_least: Bytes) -> Result<Bound, UserError> {
    let available = card.available();
    let is_large = at_least > available;
    let refused = match is_large || many(&request.model).is_some() {
        true => None,
        false => {
            let run = simulate_step(&request.model, &request.job, card.device.clone());
            run.map_err(|error| card.error(error))?.outcome().err()
        }
    };
    Ok(Bound {
        gpu: GpuName::new(card),
        fits: (is_large || refused.is_some()).then_some(false),
        headroom_bytes: available.signed_difference(at_least),
        reason: refused.map(|refused| refused.to_string()),
    })
}

/// Refuses a `model` whose network is not known, for a command that needs its step.
///
/// # Errors
///
/// Only the weights are known.
pub fn need_network(model: &AnyModel, origin: &Origin, command: &str) -> Result<(), UserError> {
    let AnyModel::Weights(weights) = model else {
        return Ok(());
    };
    let why = match &origin.unsupported {
        Some(why) => why.clone(),
        None => format!("{} has no config.json", weights.name()),
    };
    Err(
        UserError::new(format!("{command} needs a network, and {why}"))
            .hint("`fit-check estimate` tells what the weights take at least"),
    )
}
