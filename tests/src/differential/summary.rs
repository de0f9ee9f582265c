//! The outcomes of many cases.

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::outcome::{CaseOutcome, Ended, Quantity, Tally};

/// The outcomes of the cases of one sequence, in one build of burn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The day, as `2026-11-23`.
    pub date: String,
    /// burn's switches, as `fusion on, autotune on`.
    pub burn: String,
    /// The sequence.
    pub seed: u64,
    /// The first case, and the first that was not run.
    pub numbers: (u64, u64),
    /// Cases that ran on both sides.
    pub cases: u64,
    /// Cases of a random network, and not one of the zoo.
    pub random: u64,
    /// Cases in which the card's memory is limited.
    pub limited: u64,
    /// Cases that trained on the real runtime.
    pub trained: u64,
    /// Cases that ran out of memory there.
    pub out_of_memory: u64,
    /// Cases that failed there in another way: burn has no such kernel, for instance.
    pub failed: u64,
    /// Cases in which both sides agree in everything.
    pub agree: u64,
    /// Those of them that did not agree at first, and did when they were measured again.
    pub agree_again: u64,
    /// Cases that agree with another run than the usual one, which a step has to complete to fit too.
    #[serde(default)]
    pub other_run: u64,
    /// Cases that trained on the simulated card and not on the real runtime.
    pub false_fits: u64,
    /// Cases that trained on the real runtime and not on the simulated card.
    pub false_refusals: u64,
    /// Requests that the network did not accept.
    pub skipped: u64,
    /// The quantities at the ends of phases.
    pub quantities: Vec<(Quantity, Tally)>,
    /// The cases in which the two sides differ, made smaller.
    pub differ: Vec<(u64, Case, CaseOutcome)>,
}

impl Summary {
    /// Adds the outcome of the case with this number; `again` if both sides agreed only when it was measured
    /// again.
    pub fn add(&mut self, number: u64, case: &Case, outcome: &CaseOutcome, again: bool) {
        self.cases += 1;
        self.agree_again += u64::from(again);
        self.random += u64::from(case.network.is_random());
        self.limited += u64::from(case.memory_percent.is_some());
        *match outcome.real {
            Ended::Trained => &mut self.trained,
            Ended::OutOfMemory => &mut self.out_of_memory,
            Ended::Failed(_) => &mut self.failed,
        } += 1;
        self.other_run += u64::from(outcome.other_run && outcome.agrees());
        let trained = |ended: &Ended| *ended == Ended::Trained;
        match (trained(&outcome.simulated), trained(&outcome.real)) {
            (true, false) => self.false_fits += 1,
            (false, true) => self.false_refusals += 1,
            _ => {}
        }
        for (quantity, tally) in &outcome.quantities {
            let mut known = self.quantities.iter_mut();
            match known.find(|(known, _)| known == quantity) {
                Some((_, sum)) => sum.merge(tally),
                None => self.quantities.push((*quantity, *tally)),
            }
        }
        match outcome.agrees() {
            true => self.agree += 1,
            false => self.differ.push((number, case.clone(), outcome.clone())),
        }
    }
}
