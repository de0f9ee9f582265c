//! What `max-batch --save` wrote, in place of a model.

use std::path::Path;
use std::rc::Rc;

use torch_memory::allocator::AllocatorConfig;
use torch_memory::kept::{self, Kept};
use torch_memory::saved::Saved;

use super::zoo::{of_environment, typed};
use crate::cli::{self, Advise};
use crate::job_info::GpuName;
use crate::resolve::Card;
use crate::torch_program::batches::Found;
use crate::torch_program::job::TorchJob;
use crate::torch_program::report::allocator_config;
use crate::torch_program::saved::About;
use crate::torch_program::source::{Beforehand, Source, Step};
use crate::user_error::UserError;

/// What to do about a file that cannot be read.
const AGAIN: &str = "`fit-check max-batch --save FILE --gpu CARD -- python train.py {batch}` writes such a file anew";

/// A program that was recorded.
pub(super) struct File {
    path: String,
    saved: Saved<About>,
    config: AllocatorConfig,
}

impl File {
    /// What was recorded in the file at `path`.
    ///
    /// # Errors
    ///
    /// It cannot be read, or an option says how it is trained, which the file does.
    pub(super) fn new(
        path: &str,
        precision: &str,
        options: &cli::Options,
        attention: Option<&str>,
    ) -> Result<Self, UserError> {
        let saved = Saved::<About>::read(Path::new(path))
            .map_err(|error| UserError::new(format!("{path}: {error}")).hint(AGAIN))?;
        // It is typed unless it is the default.
        let precision = (precision != "fp32").then_some("--precision");
        if let Some(option) = typed(options, attention).or(precision) {
            return Err(UserError::new(format!(
                "{option} is not for what was recorded: {path} has one training step"
            ))
            .hint(format!("leave it out: it is {}", saved.about.program)));
        }
        let (_, first) = &saved.recordings[0];
        let config = match of_environment()? {
            Some(config) => config,
            None => allocator_config(&first.process)?,
        };
        Ok(Self {
            path: path.into(),
            saved,
            config,
        })
    }

    /// What was recorded with the kernels of a card like `card`; without one, of the usual card, or else of any.
    fn nearest(&self, card: Option<&Card>) -> Result<&Kept, UserError> {
        let Some(card) = card else {
            let usual = self.saved.nearest(kept::USUAL_CAPABILITY);
            return Ok(usual.unwrap_or(&self.saved.recordings[0].1));
        };
        let nearest = self.saved.nearest(card.device.card.compute_capability);
        nearest.ok_or_else(|| {
            let recorded = self.saved.recordings.iter();
            let recorded: Vec<_> = recorded.map(|(_, kept)| kept.recorded_on.as_str()).collect();
            UserError::new(format!(
                "{} was not recorded with the kernels of {}, which take other memory than those of {}",
                self.path,
                GpuName::new(card).name,
                recorded.join(" and ")
            ))
            .hint("repeat --gpu when it is recorded: one card before Ampere, one of Ampere or Ada, one that is newer; each gets its kernels")
        })
    }
}

impl Source for File {
    fn name(&self) -> &str {
        &self.saved.about.program
    }

    fn job(&self, batch: Option<u64>) -> Option<TorchJob> {
        let job = self.saved.about.job.clone()?;
        Some(TorchJob { batch, ..job })
    }

    fn usual_batch(&self) -> Result<u64, UserError> {
        let path = &self.path;
        Err(
            UserError::new(format!("{path} answers for any batch")).hint(format!(
                "--batch N says which; `fit-check max-batch {path} --gpu CARD` finds the largest"
            )),
        )
    }

    fn knows(&self, card: &Card) -> bool {
        self.nearest(Some(card)).is_ok()
    }

    fn steps(&self, batch: u64, cards: &[Card]) -> Result<Vec<Rc<Step>>, UserError> {
        self.kept_steps(batch, cards)
    }

    fn largest_batches(&self, cards: &[Card], advise: Advise) -> Result<Found, UserError> {
        self.kept_batches(cards, advise)
    }
}

impl Beforehand for File {
    fn recorded_on(&self, card: Option<&Card>) -> Result<&str, UserError> {
        Ok(&self.nearest(card)?.recorded_on)
    }

    fn kept(&self, card: Option<&Card>) -> Result<Kept, UserError> {
        self.nearest(card).cloned()
    }

    fn config(&self) -> &AllocatorConfig {
        &self.config
    }
}
