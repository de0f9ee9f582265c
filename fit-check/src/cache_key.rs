//! The keys of the cache: everything on which an answer depends.

use estimator::{DeviceSpec, Runtime, Tuning};
use model_zoo::{Job, Model, Request};
use serde::Serialize;

use crate::job_info::GpuName;
use crate::resolve::{Card, ResolvedRequest};

/// A training step, with everything on which its calls depend besides the card.
#[derive(Clone, Debug, Serialize)]
pub struct StepKey {
    model: String,
    request: Request,
    runtime: Runtime,
    only: Option<Tuning>,
}

impl StepKey {
    /// The key of `job` of `model`.
    pub fn new(model: &impl Model, job: &Job, runtime: Runtime, only: Option<Tuning>) -> Self {
        Self {
            model: model.name().into(),
            request: job.request(),
            runtime,
            only,
        }
    }
}

/// A question, with everything on which its answer depends.
#[derive(Clone, Debug, Serialize)]
pub struct Question<O> {
    /// The command.
    command: &'static str,
    /// Those of its options that change the answer, besides the jobs, the cards and the runtime.
    options: O,
    /// The jobs.
    steps: Vec<StepKey>,
    cards: Vec<(GpuName, DeviceSpec)>,
}

impl<O: Serialize> Question<O> {
    /// The question that `command` with `options` asks about `steps` on `cards`.
    pub fn new(command: &'static str, options: O, steps: Vec<StepKey>, cards: &[Card]) -> Self {
        let cards = cards.iter();
        let cards = cards.map(|card| (GpuName::new(card), card.device.clone()));
        Self {
            command,
            options,
            steps,
            cards: cards.collect(),
        }
    }

    /// The question that `command` with `options` asks about `request`.
    pub fn about<M: Model>(
        command: &'static str,
        options: O,
        request: &ResolvedRequest<M>,
    ) -> Self {
        let ResolvedRequest {
            model, job, only, ..
        } = request;
        let step = StepKey::new(model, job, request.runtime, *only);
        Self::new(command, options, vec![step], &request.cards)
    }
}
