//! The largest batch of a PyTorch program on each card: two recordings at small batches tell all others, and
//! the answer is recorded once more.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use estimator::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::kept::Kept;
use torch_memory::replay::{Replay, least_capacity};
use torch_memory::scaling::Scaling;
use torch_memory::search::largest_batch;
use torch_memory::stream::Recording;
use torch_memory::trace::{Approximation, Trace};

use super::alternatives::MAX_CARDS;
use super::fitting::driven_cards;
use super::job::TorchJob;
use super::report::{Torch, allocator_config, reason, shown};
use super::source::Source;
use crate::cli::Advise;
use crate::interrupt;
use crate::job_info::{GpuName, SCHEMA};
use crate::progress::Progress;
use crate::resolve::Card;
use crate::user_error::UserError;

/// The pairs of batches that are recorded first. A program that does something else at the first pair, a batch norm of
/// too few samples for instance, may not at the second.
const SMALL: [(u64, u64); 2] = [(2, 3), (8, 9)];

/// The batches of the search end here; no card has room for more samples of anything that is trained.
const MAX_BATCH: u64 = 1 << 22;

/// How many batches are recorded on the way to the largest one. Halving an interval of batches from 2 to a million takes 20.
const MOST_RECORDED: usize = 24;

/// The answer of `max-batch` and `table` about a PyTorch program.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TorchBatchReport {
    /// Version of this interface.
    pub schema: u32,
    /// The program and its arguments, with `{batch}`, or the name of a network.
    pub program: String,
    /// The training step, if the options of the command say all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<TorchJob>,
    /// The class of the program's optimizer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<String>,
    /// The card with whose kernels the step was recorded beforehand; none if it was recorded now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_on: Option<String>,
    /// The batches at which it was recorded beforehand; the one after each was recorded too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recorded_batches: Vec<u64>,
    /// The versions that decide the answer.
    pub torch: Torch,
    /// The largest batch on each card.
    pub cards: Vec<TorchCardBatch>,
}

impl TorchBatchReport {
    /// The answer about the cards of both, which can have other kernels.
    pub fn with(mut self, other: Self) -> Self {
        self.cards.extend(other.cards);
        if let (Some(known), Some(card)) = (&mut self.recorded_on, other.recorded_on)
            && !known.split(", ").any(|known| known == card)
        {
            *known += &format!(", {card}");
        }
        add_batches(&mut self.recorded_batches, &other.recorded_batches);
        self
    }
}

/// Adds the batches that `known` lacks.
pub fn add_batches(known: &mut Vec<u64>, others: &[u64]) {
    known.extend(others);
    known.sort_unstable();
    known.dedup();
}

/// The answer of `table --framework pytorch`, and of `table` with a program and several lengths of a sequence.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TorchTableReport {
    /// Version of this interface.
    pub schema: u32,
    /// The program and its arguments, if the rows are of a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The card with whose kernels networks of the zoo were recorded beforehand; none if there are none in the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_on: Option<String>,
    /// The batches at which it was recorded beforehand; the one after each was recorded too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recorded_batches: Vec<u64>,
    /// The versions that decide the answer.
    pub torch: Torch,
    /// The labels of the cards.
    pub cards: Vec<String>,
    /// The cards.
    pub gpus: Vec<GpuName>,
    /// One row for each network and number format, or for each length of a sequence.
    pub rows: Vec<TorchTableRow>,
}

/// A network in one number format, or a program with one length of a sequence.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TorchTableRow {
    /// The network, or the program.
    pub model: String,
    /// What decides the figures beside number formats and batch: `224x224 px, momentum`.
    pub recipe: String,
    /// The number format; empty for a program.
    pub precision: String,
    /// Tokens in a sequence; none if samples are not made of tokens, or if a program was run with one length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The largest batch on each card; 0 if not even one sample fits.
    pub batches: Vec<u64>,
}

/// The largest batch on one card.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TorchCardBatch {
    /// The card.
    pub gpu: GpuName,
    /// The largest batch; 0 if not even one sample fits.
    pub max_batch: u64,
    /// Tokens in it, if samples are made of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// What it needs; none if not even one sample fits.
    pub at_max: Option<BatchMemory>,
    /// The first batch that does not fit.
    pub next: BatchMemory,
    /// The allocation that the card refuses then.
    pub next_refused: String,
    /// Why both batches were not recorded, but replayed from smaller ones; none if they were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<String>,
    /// The largest batch with PyTorch's expandable segments, by replay; none if they are in use, or are no help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expandable_batch: Option<u64>,
    /// The cards with the least memory that have room for more samples, by replay, if they were asked for or not even one
    /// fits here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub larger_cards: Vec<LargerCard>,
}

/// A card that has room for more samples.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct LargerCard {
    /// The name to type for it.
    pub alias: &'static str,
    /// Its name.
    pub name: String,
    /// The largest batch on it.
    pub max_batch: u64,
}

/// The memory of a batch.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct BatchMemory {
    /// The batch.
    pub batch: u64,
    /// The least memory with which its steps complete.
    pub required_bytes: Bytes,
    /// `torch.cuda.max_memory_allocated()`.
    pub allocated_bytes: Bytes,
    /// `torch.cuda.max_memory_reserved()`, on a card with enough memory.
    pub reserved_bytes: Bytes,
    /// The most that `nvidia-smi` would show, as in the answer of `run`.
    pub device_bytes: Bytes,
}

impl BatchMemory {
    fn of(batch: u64, trace: &Trace, config: &AllocatorConfig, card: &Card) -> Self {
        let replay = Replay::of(trace, config, u64::MAX);
        Self {
            batch,
            required_bytes: Bytes(least_capacity(trace, config)),
            allocated_bytes: Bytes(replay.max_allocated_bytes),
            reserved_bytes: Bytes(replay.max_reserved_bytes),
            device_bytes: shown(trace, config, Some(card), replay.max_reserved_bytes),
        }
    }
}

/// Records the program with a batch on a card.
pub trait Record {
    /// What the program does then.
    ///
    /// # Errors
    ///
    /// It does not come to the end of two steps.
    fn record(&mut self, card: &Card, batch: u64) -> Result<Recording, UserError>;
}

/// A program, and where its progress is shown: one step for each recording.
pub struct Followed<'a, R> {
    /// The program.
    pub program: R,
    /// Its progress.
    pub progress: &'a Progress,
}

impl<R: Record> Record for Followed<'_, R> {
    fn record(&mut self, card: &Card, batch: u64) -> Result<Recording, UserError> {
        self.progress.at(&format!("recording batch {batch}"));
        self.program.record(card, batch)
    }
}

/// How often a program is recorded for the largest batch on each of `cards`: at two small batches on a card of each generation, and
/// at the answer of each card.
pub fn recordings(cards: &[Card]) -> u64 {
    let generations = cards.iter().map(|card| card.device.card.compute_capability);
    let generations: BTreeSet<_> = generations.collect();
    2 * (generations.len() + cards.len()) as u64
}

/// What was found of a program, and what was recorded for it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The largest batches.
    pub report: TorchBatchReport,
    /// What tells every batch, by the compute capability (times ten) of the card on which it was recorded.
    pub recordings: Vec<(u32, Kept)>,
}

/// Finds the largest batch of `program`, of which `job` says all if it is a network, on each of `cards`.
///
/// # Errors
///
/// The program cannot be recorded at small batches, or what it takes does not follow from them.
pub fn largest_batches(
    program: String,
    job: Option<TorchJob>,
    cards: &[Card],
    advise: Advise,
    record: &mut impl Record,
) -> Result<Found, UserError> {
    let mut found = Vec::with_capacity(cards.len());
    // Kernels, and with them what they allocate, depend on the generation of the card.
    let mut searches: BTreeMap<u32, Search> = BTreeMap::new();
    for card in cards {
        let capability = card.device.card.compute_capability;
        let search = match searches.entry(capability) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Search::learn(card, record)?),
        };
        let found_batch = search.card_batch(card, record)?;
        found.push(search.with_advice(found_batch, card, advise));
    }
    let tokens = |batch| job.as_ref()?.tokens_of(batch);
    for card in &mut found {
        card.max_tokens = tokens(card.max_batch);
    }
    let any = searches.values().next();
    let report = TorchBatchReport {
        schema: SCHEMA,
        program,
        job,
        optimizer: any.and_then(Search::optimizer),
        recorded_on: None,
        recorded_batches: Vec::new(),
        torch: any.map(Search::torch).unwrap_or_default(),
        cards: found,
    };
    let recordings = searches.into_iter();
    Ok(Found {
        report,
        recordings: recordings
            .map(|(made, search)| (made, search.kept))
            .collect(),
    })
}

/// The largest batch on each of `cards` of `source`, which was recorded beforehand, with the kernels of a card like them.
pub fn of_kept(
    source: &impl Source,
    kept: Kept,
    config: AllocatorConfig,
    cards: &[Card],
    advise: Advise,
) -> TorchBatchReport {
    let search = Search::of_kept(kept, config);
    let job = source.job(None);
    let batch = |card: &Card| {
        let batch = search.predict(card.available().0);
        let why = "it was recorded beforehand";
        let found = search.report(card, batch, batch + 1, Some(why.to_string()));
        TorchCardBatch {
            max_tokens: job.as_ref().and_then(|job| job.tokens_of(batch)),
            ..search.with_advice(found, card, advise)
        }
    };
    TorchBatchReport {
        schema: SCHEMA,
        program: source.name().into(),
        optimizer: search.optimizer(),
        torch: search.torch(),
        cards: cards.iter().map(batch).collect(),
        recorded_batches: search.kept.batches(),
        recorded_on: Some(search.kept.recorded_on),
        job,
    }
}

/// The largest batch on `card` of a network that was recorded beforehand; 0 if not even one sample fits.
pub fn largest_of_kept(kept: Kept, config: AllocatorConfig, card: &Card) -> u64 {
    Search::of_kept(kept, config).predict(card.available().0)
}

/// The card whose kernels a recording on `card` has: its name, or the compute capability of a card that is a size alone.
pub fn kernels_of(card: &Card) -> String {
    match card.gpu {
        Some(gpu) => gpu.name.clone(),
        None => {
            let capability = f64::from(card.device.card.compute_capability) / 10.0;
            format!("a card of compute capability {capability:.1}")
        }
    }
}

/// What is known about a program on the cards of one generation.
struct Search {
    kept: Kept,
    config: AllocatorConfig,
    /// What was recorded, by batch.
    recorded: BTreeMap<u64, Trace>,
}

impl Search {
    /// What is known of what was recorded beforehand.
    fn of_kept(kept: Kept, config: AllocatorConfig) -> Self {
        Self {
            kept,
            config,
            recorded: BTreeMap::new(),
        }
    }

    fn torch(&self) -> Torch {
        Torch::of(&self.kept.process)
    }

    /// The class of the program's optimizer, where the recorder says it.
    fn optimizer(&self) -> Option<String> {
        let name = self.kept.information.get("optimizer")?;
        name.as_str().map(str::to_string)
    }

    /// Records the program at two small batches.
    fn learn(card: &Card, record: &mut impl Record) -> Result<Self, UserError> {
        let mut mismatch = None;
        for (small, larger) in SMALL {
            let first = record.record(card, small)?;
            let second = record.record(card, larger)?;
            match Scaling::new(small, first.trace.clone(), larger, &second.trace) {
                Ok(scaling) if !scaling.grows() => {
                    return Err(UserError::new("the memory of the program does not depend on {batch}")
                        .hint("does the program use that argument? Its memory is the same with 2 and with 3"));
                }
                Ok(scaling) => {
                    let config = allocator_config(&first.process)?;
                    let without_bytes = |found| Approximation {
                        bytes: Bytes::ZERO,
                        ..found
                    };
                    let approximations = first.approximations.into_iter();
                    return Ok(Self {
                        kept: Kept {
                            process: first.process,
                            scaling,
                            steps: first.steps,
                            approximations: approximations.map(without_bytes).collect(),
                            information: first.information,
                            recorded_on: kernels_of(card),
                        },
                        config,
                        recorded: [(small, first.trace), (larger, second.trace)].into(),
                    });
                }
                Err(error) => mismatch = Some(error),
            }
        }
        let mismatch = mismatch
            .map(|mismatch| mismatch.to_string())
            .unwrap_or_default();
        Err(UserError::new(mismatch).hint(
            "the largest batch needs a program that makes the same calls at any batch: samples of one length, no sizes that depend on data; `fit-check run` answers for one batch",
        ))
    }

    /// The largest batch on `card`: it and the next are recorded, and where a program does something else there than at smaller
    /// batches, it is learnt anew from two near them.
    ///
    /// # Errors
    ///
    /// The user interrupted it.
    fn card_batch(
        &mut self,
        card: &Card,
        record: &mut impl Record,
    ) -> Result<TorchCardBatch, UserError> {
        let capacity = card.available().0;
        let mut made = 0;
        loop {
            let (most, least) = self.recorded_border(capacity);
            if least == most + 1 {
                return Ok(self.report(card, most, least, None));
            }
            if made >= MOST_RECORDED {
                let why = "the program does something else from some batch on, and those between were not recorded";
                return Ok(self.report(card, most, least, Some(why.into())));
            }
            let predicted = self.predict(capacity);
            let batch = match predicted {
                // The prediction holds so far.
                _ if predicted == most => most + 1,
                _ if predicted > most && predicted < least => predicted,
                // It does not. Much larger batches may take too much of the processor's memory.
                _ => (most + (least - most) / 2).min(2 * most + 1),
            };
            made += 1;
            match self.record(card, batch, record) {
                Ok(()) => {}
                Err(error) if interrupt::requested() => return Err(error),
                Err(error) => {
                    let error = error.to_string();
                    let why = error.lines().next().unwrap_or_default();
                    let batch = predicted.clamp(most, least - 1);
                    let why = why.replace("error: ", "");
                    return Ok(self.report(card, batch, batch + 1, Some(why)));
                }
            }
        }
    }

    /// The largest batch that was recorded and fits, below the smallest that was recorded and does not, which comes second.
    fn recorded_border(&self, capacity: u64) -> (u64, u64) {
        let mut fits = 0;
        for (batch, trace) in &self.recorded {
            match Replay::fits(trace, &self.config, capacity) {
                true => fits = *batch,
                false => return (fits, *batch),
            }
        }
        (fits, MAX_BATCH)
    }

    /// Records `batch`, and learns from it if it is not as predicted.
    fn record(
        &mut self,
        card: &Card,
        batch: u64,
        record: &mut impl Record,
    ) -> Result<(), UserError> {
        let trace = record.record(card, batch)?.trace;
        if self.kept.scaling.differs(batch, &trace).is_some() {
            // A neighbor is recorded already, or is needed.
            let known = [batch - 1, batch + 1];
            let known = known
                .into_iter()
                .find(|other| self.recorded.contains_key(other));
            let other = known.unwrap_or(batch + 1);
            if known.is_none() {
                let other_trace = record.record(card, other)?.trace;
                self.recorded.insert(other, other_trace);
            }
            if let Ok(learnt) = Scaling::new(batch, trace.clone(), other, &self.recorded[&other]) {
                self.kept.scaling.add(learnt);
            }
        }
        self.recorded.insert(batch, trace);
        Ok(())
    }

    /// The largest batch that fits by replay; 0 if none does.
    fn predict(&self, capacity: u64) -> u64 {
        largest_batch(&self.kept.scaling, &self.config, capacity, 1..MAX_BATCH).unwrap_or(0)
    }

    /// The trace of `batch`: as it was recorded, or else as it is predicted.
    fn trace(&self, batch: u64) -> Trace {
        self.recorded
            .get(&batch)
            .cloned()
            .unwrap_or_else(|| self.kept.scaling.at(batch))
    }

    /// That `batch` is the largest on `card` as far as is known, and `next` the least of those that do not fit.
    fn report(
        &self,
        card: &Card,
        batch: u64,
        next_batch: u64,
        unconfirmed: Option<String>,
    ) -> TorchCardBatch {
        let capacity = card.available().0;
        let next = self.trace(next_batch);
        let refused = Replay::of(&next, &self.config, capacity).refused;
        let expandable = self.config.with_expandable_segments();
        let with_expandable =
            largest_batch(&self.kept.scaling, &expandable, capacity, 1..MAX_BATCH);
        TorchCardBatch {
            gpu: GpuName::new(card),
            max_batch: batch,
            max_tokens: None,
            at_max: (batch > 0)
                .then(|| BatchMemory::of(batch, &self.trace(batch), &self.config, card)),
            next: BatchMemory::of(next_batch, &next, &self.config, card),
            larger_cards: Vec::new(),
            next_refused: refused
                .map(|refused| reason(&next, &refused))
                .unwrap_or_default(),
            unconfirmed,
            expandable_batch: with_expandable
                .filter(|larger| *larger > batch && !self.config.expandable_segments),
        }
    }

    /// `found` on `card` with the cards that have room for more, if they are asked for.
    fn with_advice(
        &self,
        mut found: TorchCardBatch,
        card: &Card,
        advise: Advise,
    ) -> TorchCardBatch {
        let advises = match advise {
            Advise::Always => true,
            Advise::Auto => found.max_batch == 0,
            Advise::Never => false,
        };
        if advises {
            let cards = driven_cards(self.kept.process.cuda.as_deref()).into_iter();
            let larger = cards.filter(|(_, other)| other.available() > card.available());
            let mut most = found.max_batch;
            let larger = larger.filter_map(|(gpu, other)| {
                let batch = self.predict(other.available().0);
                let is_more = batch > most;
                most = most.max(batch);
                is_more.then(|| LargerCard {
                    alias: gpu.alias(),
                    name: gpu.name.clone(),
                    max_batch: batch,
                })
            });
            found.larger_cards = larger.take(MAX_CARDS).collect();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use estimator::{Runtime, Tuning};

    use super::*;
    use crate::resolve;

    /// A program that allocates 1 MiB and 16 MiB for each sample, and above `threshold` samples 8 MiB more for each.
    struct Program {
        threshold: u64,
        recorded: Vec<u64>,
    }

    impl Record for Program {
        fn record(&mut self, _: &Card, batch: u64) -> Result<Recording, UserError> {
            self.recorded.push(batch);
            let bytes = match batch > self.threshold {
                true => batch * (24 << 20),
                false => batch * (16 << 20),
            };
            let lines = format!(
                "[\"hello\", {{\"version\": 1, \"torch\": \"2.15.0\"}}]\n[\"n\", 0, \"mm\"]\n\
                 [\"a\", 0, 1048576, 0, -1, 0, 0, 0]\n[\"a\", 1, {bytes}, 0, -1, 0, 0, 0]\n"
            );
            Ok(torch_memory::stream::read(lines.as_bytes()).unwrap())
        }
    }

    fn card() -> Card {
        resolve::cards(&[] as &[&str], Some("1GiB"), Runtime::Cuda, Tuning::Cold)
            .unwrap()
            .remove(0)
    }

    fn search(threshold: u64) -> (TorchCardBatch, Vec<u64>) {
        let mut program = Program {
            threshold,
            recorded: Vec::new(),
        };
        let report = largest_batches(
            "python x {batch}".into(),
            None,
            &[card()],
            Advise::Always,
            &mut program,
        )
        .unwrap()
        .report;
        (report.cards[0].clone(), program.recorded)
    }

    /// 2 MiB for the small pool leave 1022 for samples of 16 MiB.
    #[test]
    fn the_answer_and_the_next_batch_are_recorded() {
        let (found, recorded) = search(u64::MAX);
        assert_eq!((found.max_batch, recorded), (63, vec![2, 3, 63, 64]));
        assert_eq!(
            found.at_max.unwrap().required_bytes,
            Bytes::mib(63 * 16 + 2)
        );
        assert_eq!(found.next.required_bytes, Bytes::mib(64 * 16 + 2));
        assert!(
            found.next_refused.contains("for mm,"),
            "{}",
            found.next_refused
        );
        assert_eq!(found.unconfirmed, None);
        // Each larger card has room for more samples than the one before it.
        let batches = found.larger_cards.iter().map(|card| card.max_batch);
        let batches: Vec<_> = batches.collect();
        assert!(batches.len() == 3 && batches[0] > 63 && batches.is_sorted());
    }

    /// With 24 MiB for each sample above the threshold, 42 fit.
    #[test]
    fn a_threshold_below_the_answer_is_found() {
        let (found, _) = search(10);
        assert_eq!((found.max_batch, found.unconfirmed), (42, None));
    }

    /// From the threshold on not even one fits: 42 samples of 24 MiB do, 43 do not, and 50 of 16 MiB do.
    #[test]
    fn a_threshold_at_the_answer_is_the_answer() {
        let (found, recorded) = search(50);
        assert_eq!((found.max_batch, found.next.batch), (50, 51));
        assert_eq!(found.unconfirmed, None);
        let needs = found.at_max.unwrap().required_bytes;
        assert!(needs <= card().available(), "{needs}");
        assert!(recorded.len() <= MOST_RECORDED, "{recorded:?}");
    }

    /// A program that fails with more than 40 samples is not recorded at the answer.
    #[test]
    fn a_program_that_fails_at_the_answer_is_predicted() {
        struct Fails(Program);
        impl Record for Fails {
            fn record(&mut self, card: &Card, batch: u64) -> Result<Recording, UserError> {
                match batch > 40 {
                    true => Err(UserError::new("too few samples")),
                    false => self.0.record(card, batch),
                }
            }
        }
        let mut program = Fails(Program {
            threshold: u64::MAX,
            recorded: Vec::new(),
        });
        let found = largest_batches(String::new(), None, &[card()], Advise::Never, &mut program);
        let card = &found.unwrap().report.cards[0];
        assert_eq!((card.max_batch, card.next.batch), (63, 64));
        assert_eq!(card.unconfirmed.as_deref(), Some("too few samples"));
    }

    #[test]
    fn a_batch_without_effect_is_refused() {
        struct Constant;
        impl Record for Constant {
            fn record(&mut self, _: &Card, _: u64) -> Result<Recording, UserError> {
                let lines = "[\"a\", 0, 1048576, -1, -1, 0, 0, 0]\n";
                Ok(torch_memory::stream::read(lines.as_bytes()).unwrap())
            }
        }
        let error = largest_batches(String::new(), None, &[card()], Advise::Never, &mut Constant)
            .unwrap_err();
        assert!(error.to_string().contains("does not depend on {batch}"));
    }
}
