//! Longest sequence per card.

use estimator::{Program, Proposer, StepRuns, largest_batch};
use model_zoo::Model;

use crate::cli;
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::job_info::JobInfo;
use crate::output;
use crate::output::job_lines::job_name;
use crate::progress::Progress;
use crate::report::{CardLength, MaxSeqReport};
use crate::resolve::{Batch, Card, ResolvedRequest};
use crate::size_limit::{self, Work};
use crate::step::{LENGTH_STEP, training_job_at_any_length};
use crate::user_error::UserError;

/// Runs the command.
pub fn run(raw: &cli::MaxSeq) -> anyhow::Result<u8> {
    if raw.job.framework != "burn" {
        return Err(UserError::new("max-seq is about burn").hint(
            "`fit-check table --seq 512,1024,2048 --framework pytorch PATH` compares lengths in PyTorch",
        )
        .into());
    }
    let batch = Batch {
        samples: raw.batch.as_deref(),
        tokens: None,
    };
    let request = ResolvedRequest::new(&raw.job, batch)?;
    if request.cards.is_empty() {
        return Err(UserError::no_card("max-seq needs a card").into());
    }
    if request.job.input.seq.is_none() {
        return Err(
            UserError::new(format!("{} has no sequence length", request.model.name()))
                .hint(
                    "max-seq is for models of text; `fit-check max-batch` finds the largest batch",
                )
                .into(),
        );
    }
    output::check(&raw.output)?;
    let progress = Progress::new(raw.output.quiet, 1 + request.cards.len() as u64);
    let asked = JobInfo::new(&request, Some(request.job.batch));
    let _watch = size_limit::watch(&job_name(&asked), Work::Search);
    let cards = longest(&request, &progress)?;
    progress.done();
    let fits = cards.iter().all(|card| card.max_seq > 0);
    output::write(&MaxSeqReport::new(asked, cards), &raw.output)?;
    Ok(if fits { FITS } else { DOES_NOT_FIT })
}

/// Finds the longest sequence on each card of `request`.
fn longest(request: &ResolvedRequest, progress: &Progress) -> Result<Vec<CardLength>, UserError> {
    let program = training_job_at_any_length(&request.model, &request.job);
    let program = program.only(request.only).without_first_runs();
    progress.at(&format!(
        "training {} on a simulated card",
        request.model.name()
    ));
    let most = most_accepted(&program);
    let find = |card: &Card| {
        progress.at(&format!("filling {}", card.name()));
        if let Some(most) = most
            && StepRuns::of(&program, most, &card.device)?
                .verdict(&card.device)?
                .fits()
        {
            return Ok(CardLength::all(card, most * LENGTH_STEP));
        }
        let proposer = Proposer::learn(&program, &card.device)?;
        let found = largest_batch(&program, &proposer, &card.device)?;
        Ok(CardLength::new(card, &found))
    };
    let cards = request.cards.iter();
    cards
        .map(|card| find(card).map_err(|error| card.error(error)))
        .collect()
}

/// The most steps of [`LENGTH_STEP`] tokens that `program` takes, if it has no place for more: a model with embeddings of positions.
fn most_accepted(program: &impl Program) -> Option<u64> {
    /// No card has room for so many tokens.
    const MANY: u64 = 1 << 20;
    if program.accepts(MANY) || !program.accepts(1) {
        return None;
    }
    let (mut most, mut too_many) = (1, MANY);
    while most + 1 < too_many {
        let middle = most.midpoint(too_many);
        match program.accepts(middle) {
            true => most = middle,
            false => too_many = middle,
        }
    }
    Some(most)
}
