//! What a question about PyTorch is asked of: a network of the zoo, a `config.json`, or a file that an earlier recording was kept in.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

use estimator::Bytes;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::kept::Kept;
use torch_memory::replay::least_capacity;
use torch_memory::stream::Recording;

use super::alternatives::Alternative;
use super::batches::{Found, TorchBatchReport, of_kept};
use super::job::TorchJob;
use crate::cli::Advise;
use crate::resolve::Card;
use crate::user_error::UserError;
use crate::values;

/// Something that trains with a batch of any size.
pub trait Source {
    /// How an answer calls it.
    fn name(&self) -> &str;

    /// The training step, if options say all of it.
    fn job(&self, batch: Option<u64>) -> Option<TorchJob>;

    /// The batch of an answer for which none was typed.
    ///
    /// # Errors
    ///
    /// There is none that is usual.
    fn usual_batch(&self) -> Result<u64, UserError>;

    /// Whether what it does on `card` is known or can be recorded.
    fn knows(&self, _card: &Card) -> bool {
        true
    }

    /// What it does with `batch` samples on each of `cards`; without a card, one step with the kernels of most cards.
    ///
    /// # Errors
    ///
    /// It cannot be recorded.
    fn steps(&self, batch: u64, cards: &[Card]) -> Result<Vec<Rc<Step>>, UserError>;

    /// Whether it was recorded beforehand, and not when it is asked about.
    fn is_kept(&self) -> bool {
        true
    }

    /// What it needs on `card` with each change that costs no other card.
    fn with_changes(&self, _batch: u64, _card: &Card) -> Vec<Alternative> {
        Vec::new()
    }

    /// The largest batch on each of `cards`, of which there is one at least.
    ///
    /// # Errors
    ///
    /// It cannot be recorded.
    fn largest_batches(&self, cards: &[Card], advise: Advise) -> Result<Found, UserError>;

    /// The batch that was typed in samples or in tokens, or the usual one.
    ///
    /// # Errors
    ///
    /// It is no number, both were typed, a sample has no tokens, or there is no usual batch.
    fn batch(&self, samples: Option<&str>, tokens: Option<&str>) -> Result<u64, UserError> {
        let samples = values::optional_count("--batch", samples)?;
        let Some(tokens) = values::optional_count("--tokens", tokens)? else {
            return samples.map_or_else(|| self.usual_batch(), |samples| Ok(samples as u64));
        };
        if samples.is_some() {
            return Err(
                UserError::new("--batch and --tokens exclude each other").hint(
                    "--batch counts samples; --tokens N is as many samples as have at most N tokens",
                ),
            );
        }
        let name = self.name();
        match self.job(None).and_then(|job| job.input.tokens()) {
            None => Err(UserError::new(format!("samples of {name} have no tokens"))
                .hint("--batch N says how many samples")),
            Some(each) if each > tokens => Err(UserError::new(format!(
                "one sample of {name} has {each} tokens"
            ))
            .hint(format!("--tokens is at least {each}"))),
            Some(each) => Ok((tokens / each) as u64),
        }
    }
}

/// A source that was recorded beforehand, with the kernels of some cards.
pub trait Beforehand: Source {
    /// The card on which it was recorded for cards like `card`, or for most cards.
    ///
    /// # Errors
    ///
    /// It was not recorded with kernels like those of `card`.
    fn recorded_on(&self, card: Option<&Card>) -> Result<&str, UserError>;

    /// What was recorded there.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    fn kept(&self, card: Option<&Card>) -> Result<Kept, UserError>;

    /// The configuration of the allocator.
    fn config(&self) -> &AllocatorConfig;

    /// [`Source::steps`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::kept`].
    fn kept_steps(&self, batch: u64, cards: &[Card]) -> Result<Vec<Rc<Step>>, UserError> {
        let mut known: BTreeMap<&str, Rc<Step>> = BTreeMap::new();
        let of = |card: Option<&Card>| {
            let recorded_on = self.recorded_on(card)?;
            if let Some(known) = known.get(recorded_on) {
                return Ok(known.clone());
            }
            let kept = self.kept(card)?;
            let (recording, config) = (kept.at(batch), self.config().clone());
            let step = Rc::new(Step {
                batches: kept.batches(),
                ..Step::recorded(recording, recorded_on.into(), config)
            });
            known.insert(recorded_on, step.clone());
            Ok(step)
        };
        match cards {
            [] => std::iter::once(None).map(of).collect(),
            cards => cards.iter().map(Some).map(of).collect(),
        }
    }

    /// [`Source::largest_batches`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::kept`].
    fn kept_batches(&self, cards: &[Card], advise: Advise) -> Result<Found, UserError>
    where
        Self: Sized,
    {
        let mut known: BTreeMap<&str, Kept> = BTreeMap::new();
        let on_card = |card: &Card| {
            let kept = match known.entry(self.recorded_on(Some(card))?) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(new) => new.insert(self.kept(Some(card))?).clone(),
            };
            let (config, card) = (self.config().clone(), std::slice::from_ref(card));
            Ok(of_kept(self, kept, config, card, advise))
        };
        let reports: Vec<_> = cards
            .iter()
            .map(on_card)
            .collect::<Result<_, UserError>>()?;
        let report = reports.into_iter().reduce(TorchBatchReport::with);
        let report = report.ok_or_else(|| UserError::no_card("a largest batch needs a card"))?;
        Ok(Found {
            report,
            recordings: Vec::new(),
        })
    }
}

/// A step with the kernels of some generation of cards.
#[derive(Debug)]
pub struct Step {
    /// What it does.
    pub recording: Recording,
    /// The card on which it was recorded.
    pub recorded_on: String,
    /// The batches at which it was recorded beforehand; empty if it was recorded now.
    pub batches: Vec<u64>,
    /// The configuration of the allocator.
    pub config: AllocatorConfig,
    required: OnceCell<Bytes>,
}

impl Step {
    /// A step that was recorded now.
    pub fn recorded(recording: Recording, recorded_on: String, config: AllocatorConfig) -> Self {
        Self {
            recording,
            recorded_on,
            batches: Vec::new(),
            config,
            required: OnceCell::new(),
        }
    }

    /// The least memory with which it completes.
    pub fn required(&self) -> Bytes {
        *self
            .required
            .get_or_init(|| Bytes(least_capacity(&self.recording.trace, &self.config)))
    }
}
