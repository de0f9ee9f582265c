//! Every allocation of a step refused once: on CUDA's own runtime, and on the simulated card.

use estimator::Refusals;
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::outcome::{CaseOutcome, Ended};

/// One refused allocation, and what both sides made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusalOutcome {
    /// The requests that the card refused.
    pub refusals: Refusals,
    /// How both sides ended.
    pub outcome: CaseOutcome,
}

/// Runs `case` twice for each request that it makes to the card, up to `most` of them, spread evenly: the card
/// refuses that request alone, and then every later one as well. Passes each outcome to `on_outcome`.
///
/// # Errors
///
/// The child process could not be started, or the case does not train without refusals.
pub fn refuse_each(
    case: &Case,
    most: u64,
    mut on_outcome: impl FnMut(RefusalOutcome),
) -> anyhow::Result<()> {
    let Some(case) = case.accepted()? else {
        anyhow::bail!("the network does not accept the request");
    };
    let (_, requests) = case.measure(None)?;
    let step = requests.div_ceil(most).max(1);
    for first in (1..=requests).step_by(step as usize) {
        for count in [1, u64::MAX] {
            let refusals = Refusals { first, count };
            let (measured, _) = case.measure(Some(refusals))?;
            let outcome = case.compare(&measured, Some(refusals));
            on_outcome(RefusalOutcome { refusals, outcome });
        }
    }
    Ok(())
}

impl RefusalOutcome {
    /// Whether the card refused every later request as well.
    pub fn is_for_good(&self) -> bool {
        self.refusals.count > 1
    }

    /// Whether the real side ended in a way that `verify` can report: it trained, or it ran out of memory.
    pub fn is_typed(&self) -> bool {
        !matches!(self.outcome.real, Ended::Failed(_))
    }
}
