//! The cards of the catalogue on which a training step fits.

use estimator::{Bytes, CardSpec, Error, Estimate, Gpu, Runtime, replay};
use model_zoo::{Job, Model};
use serde::Serialize;

use crate::ask::Card;
use crate::report::{Asked, GpuName};
use crate::step::simulate_step;
use crate::{kernels, parallel};

/// The answer of `gpus --fits`.
#[derive(Clone, Debug, Serialize)]
pub struct FitsReport {
    /// What was asked.
    #[serde(flatten)]
    pub asked: Asked,
    /// Where it fits, the least usable memory first.
    pub cards: Vec<Fitting>,
    /// Where it could not be told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_told: Vec<NotTold>,
}

/// A card on which a step fits.
#[derive(Clone, Debug, Serialize)]
pub struct Fitting {
    /// The card.
    pub gpu: GpuName,
    /// What to type for it.
    pub handle: &'static str,
    /// The number on the box, in GB.
    pub marketed_gb: f64,
    /// US list price at launch, where the catalogue has it.
    pub launch_price_usd: Option<f64>,
    /// Year of its launch.
    pub launch_year: Option<u32>,
    /// The least memory with which the step completes on such a card.
    pub required_bytes: Bytes,
    /// What is left over.
    pub headroom_bytes: i64,
}

/// A card on which the step went wrong.
#[derive(Clone, Debug, Serialize)]
pub struct NotTold {
    /// The card.
    pub gpu: GpuName,
    /// What went wrong.
    pub error: String,
}

/// Cards with the same kernels: a step makes the same calls on all of them.
struct Kin {
    endless: CardSpec,
    cards: Vec<(&'static Gpu, Card)>,
}

impl Kin {
    /// Every card that `runtime` drives, those with the same kernels together.
    fn all(runtime: Runtime) -> Vec<Self> {
        let driven = Gpu::all().iter().filter(|gpu| gpu.is_driven_by(runtime));
        let cards = driven.map(|gpu| (gpu, Card::of(gpu, runtime)));
        let kinds = kernels::alike(cards, |(_, card)| card.spec.clone());
        let kinds = kinds.into_iter().map(|cards| Self {
            endless: cards[0].1.spec.without_limit(),
            cards,
        });
        kinds.collect()
    }

    /// Those on which the step fits. It runs once; its recording is then replayed in the memory
    /// of each card.
    fn fitting<M: Model + Sync>(&self, model: &M, job: &Job) -> Result<Vec<Fitting>, Error> {
        let simulated = simulate_step(model, job, self.endless.clone())?;
        let recording = &simulated.recording;
        let required = Estimate::of(&simulated, &self.endless).peak.required_bytes;
        let fits = |card: &Card| {
            let outcome = replay(&card.spec, recording, |id| recording.buffer(id).bytes);
            outcome.completed()
        };
        let cards = self.cards.iter().filter(|(_, card)| fits(card));
        let fitting = cards.map(|(gpu, card)| Fitting {
            gpu: GpuName::new(card),
            handle: gpu.handle(),
            marketed_gb: gpu.marketed_gb,
            launch_price_usd: gpu.launch_price_usd,
            launch_year: gpu.launch_year,
            required_bytes: required,
            headroom_bytes: card
                .spec
                .available()
                .unwrap_or(Bytes(u64::MAX))
                .signed_difference(required),
        });
        Ok(fitting.collect())
    }
}

/// The cards of the catalogue that `runtime` drives and on which the step of `job` fits, the
/// least usable memory first, and those on which it went wrong.
pub fn fitting<M: Model + Sync>(
    model: &M,
    job: &Job,
    runtime: Runtime,
) -> (Vec<Fitting>, Vec<NotTold>) {
    let kin = Kin::all(runtime);
    let found = parallel::each(&kin, |kin| kin.fitting(model, job));
    let mut cards = Vec::new();
    let mut not_told = Vec::new();
    for (kin, found) in kin.iter().zip(found) {
        match found {
            Ok(fitting) => cards.extend(fitting),
            Err(error) => not_told.extend(kin.cards.iter().map(|(_, card)| NotTold {
                gpu: GpuName::new(card),
                error: error.to_string().lines().next().unwrap_or_default().into(),
            })),
        }
    }
    cards.sort_by_key(|card| card.gpu.usable_bytes);
    (cards, not_told)
}
