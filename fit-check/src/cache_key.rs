//! The keys of the cache: everything on which an answer depends.

use estimator::{DeviceSpec, Runtime, Tuning};
use model_zoo::{Model, Request};
use serde::Serialize;

use crate::job_info::GpuName;
use crate::resolve::ResolvedRequest;

/// A training step at any batch, with everything on which its calls depend besides the card.
#[derive(Clone, Debug, Serialize)]
struct StepKey {
    model: String,
    request: Request,
    runtime: Runtime,
    only: Option<Tuning>,
}

impl StepKey {
    fn new<M: Model>(request: &ResolvedRequest<M>) -> Self {
        Self {
            model: request.model.name().into(),
            request: request.job.request(),
            runtime: request.runtime,
            only: request.only,
        }
    }
}

/// A question, with everything on which its answer depends.
#[derive(Clone, Debug, Serialize)]
pub struct Question<O> {
    /// The command.
    command: &'static str,
    /// Those of its options that change the answer, besides the job, the cards and the runtime.
    options: O,
    step: StepKey,
    cards: Vec<(GpuName, DeviceSpec)>,
}

impl<O: Serialize> Question<O> {
    /// The question that `command` with `options` asks about `request`.
    pub fn new<M: Model>(command: &'static str, options: O, request: &ResolvedRequest<M>) -> Self {
        let cards = request.cards.iter();
        Self {
            command,
            options,
            step: StepKey::new(request),
            cards: cards
                .map(|card| (GpuName::new(card), card.device.clone()))
                .collect(),
        }
    }
}
