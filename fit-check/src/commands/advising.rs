//! Advice in an answer: shown change by change, and for no longer than people wait.

use std::sync::Arc;

use model_zoo::Model;

use crate::advice::{Advice, Change, Goal, Known, TIME, advise};
use crate::exit_status::UNKNOWN;
use crate::interrupt;
use crate::job_info::GpuName;
use crate::progress::Progress;
use crate::resolve::{Card, ResolvedRequest};
use crate::user_error::UserError;

/// How long a change that has begun is waited for once the time is over.
const GRACE: std::time::Duration = std::time::Duration::from_secs(3);

/// Finds changes that would make the job of `request` fit on `card`. If Ctrl-C ends the program meanwhile, or a change takes too
/// long, it ends with `write`, which writes the answer with the changes that are known; `status` is that of the answer.
///
/// # Errors
///
/// The job itself cannot be simulated, or the system does not allow to watch for Ctrl-C.
pub(super) fn changes<M: Model + Sync>(
    request: &ResolvedRequest<M>,
    card: &Card,
    layers: &[String],
    goal: Goal,
    progress: &Progress,
    status: u8,
    write: impl FnOnce(Advice) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<Advice> {
    let known = Arc::new(Known::default());
    let gpu = GpuName::new(card);
    interrupt::watch(std::time::Duration::ZERO)?;
    let (so_far, name) = (known.clone(), gpu.clone());
    interrupt::at_end(move || {
        if let Err(error) = write(so_far.advice(name, false)) {
            anstream::eprintln!("{}", UserError::from(error));
        }
        if interrupt::requested() {
            anstream::eprintln!("interrupted: some changes are not in this answer");
            return Some(UNKNOWN);
        }
        Some(status)
    });
    interrupt::end_after(TIME + GRACE);
    let shown = |change: &Change| {
        let fits = if change.fits { "fits" } else { "does not fit" };
        let needs = change.required_bytes;
        progress.line(&format!(
            "{}: {fits}, needs {needs} ({})",
            change.what, change.flags
        ));
    };
    let complete = advise(request, card, layers, goal, &known, shown);
    interrupt::disarm();
    let complete = complete.map_err(|error| card.error(error).about("no advice"))?;
    Ok(known.advice(gpu, complete))
}
