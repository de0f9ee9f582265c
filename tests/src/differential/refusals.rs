//! Every allocation of a step refused: on CUDA's own runtime, and on the simulated card.

use std::sync::Mutex;

use estimator::Refusals;
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::outcome::{CaseOutcome, Ended, agreeing};
use super::record::switches;
use crate::workers::share;

/// What became of a job whose requests for memory were refused, one at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefusalRecord {
    /// The day, as `2026-11-26`.
    pub date: String,
    /// burn's switches, as `fusion on, autotune on`.
    pub burn: String,
    /// The job.
    pub case: Case,
    /// The requests for memory that it makes to the card.
    pub requests: u64,
    /// Runs in which one request was refused.
    pub once: RefusalCounts,
    /// Runs in which a request and every later one were refused.
    pub for_good: RefusalCounts,
    /// The runs in which the two sides differ.
    pub differ: Vec<RefusalOutcome>,
}

/// How the runs of a job with refused requests ended.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RefusalCounts {
    /// The runs.
    pub runs: u64,
    /// Those in which the step trained on both sides.
    pub trained: u64,
    /// Those in which it ran out of memory on both sides.
    pub out_of_memory: u64,
    /// Those in which both sides agree in everything.
    pub agree: u64,
    /// Of these, the ones that differed when they were measured for the first time.
    #[serde(default)]
    pub again: u64,
}

/// One refused request, and what both sides made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusalOutcome {
    /// The requests that the card refused.
    pub refusals: Refusals,
    /// How both sides ended.
    pub outcome: CaseOutcome,
}

/// Which requests of a job are refused, and how.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// The most requests, spread evenly over all that the job makes.
    pub most: u64,
    /// Only this request, counted from one.
    pub only: Option<u64>,
    /// How often a run in which the two sides differ is measured again: two real runs can differ too.
    pub again: u32,
    /// How many runs are made at once.
    pub workers: usize,
}

/// Runs `case` twice for each of the requests that it makes to the card: the card refuses that request alone, and then
/// every later one as well.
///
/// # Errors
///
/// The child process could not be started, the case does not train without refusals, or it makes no such request.
pub fn refuse_each(case: &Case, which: Refused) -> anyhow::Result<RefusalRecord> {
    let Some(accepted) = case.accepted()? else {
        anyhow::bail!("the network does not accept the request");
    };
    let program = accepted.program();
    let real = accepted.real_side()?;
    let (run, requests) = real.measure(None)?;
    if run.ended != Ended::Trained {
        anyhow::bail!(
            "without a refused request the step ended so: {:?}",
            run.ended
        );
    }
    let record = Mutex::new(RefusalRecord {
        date: fit_check::records::today(),
        burn: switches(),
        case: case.clone(),
        requests,
        once: RefusalCounts::default(),
        for_good: RefusalCounts::default(),
        differ: Vec::new(),
    });
    let refused: Vec<u64> = match which.only {
        Some(only) if !(1..=requests).contains(&only) => {
            anyhow::bail!("the job makes {requests} requests, and none is number {only}")
        }
        Some(only) => vec![only],
        None => {
            let step = requests.div_ceil(which.most).max(1);
            (1..=requests).step_by(step as usize).collect()
        }
    };
    let refusals = refused
        .into_iter()
        .flat_map(|first| [ONCE, FOR_GOOD].map(|count| Refusals { first, count }));
    let idle = Mutex::new(vec![real]);
    share(which.workers, refusals, |refusals| {
        let real = idle.lock().expect("no worker panics with it").pop();
        let real = real.map_or_else(|| accepted.real_side(), Ok)?;
        let run = || -> anyhow::Result<CaseOutcome> {
            let (measured, _) = real.measure(Some(refusals))?;
            Ok(accepted.compare(&program, &measured, Some(refusals)))
        };
        let first = run()?;
        let (outcome, again) = agreeing(first, which.again, CaseOutcome::agrees, run)?;
        idle.lock().expect("no worker panics with it").push(real);
        record
            .lock()
            .expect("no worker panics with it")
            .add(refusals, outcome, again);
        Ok(())
    })?;
    let mut record = record.into_inner()?;
    record
        .differ
        .sort_by_key(|run| (run.refusals.first, run.refusals.count));
    Ok(record)
}

/// The number of requests that a card refuses, which refuses one of them.
const ONCE: u64 = 1;

/// The number of requests that a card refuses, which refuses every later one too.
const FOR_GOOD: u64 = u64::MAX;

impl RefusalCounts {
    fn add(&mut self, outcome: &CaseOutcome, again: bool) {
        let both = |ended| outcome.real == ended && outcome.simulated == ended;
        self.runs += 1;
        self.trained += u64::from(both(Ended::Trained));
        self.out_of_memory += u64::from(both(Ended::OutOfMemory));
        self.agree += u64::from(outcome.agrees());
        self.again += u64::from(again);
    }
}

impl RefusalRecord {
    fn add(&mut self, refusals: Refusals, outcome: CaseOutcome, again: bool) {
        let counts = match refusals.count {
            ONCE => &mut self.once,
            _ => &mut self.for_good,
        };
        counts.add(&outcome, again);
        if !outcome.agrees() {
            self.differ.push(RefusalOutcome { refusals, outcome });
        }
    }

    /// Whether both sides agree about every refused request, and each was made good, or else the step ran out of
    /// memory.
    pub fn agrees(&self) -> bool {
        let ended = |counts: &RefusalCounts| counts.trained + counts.out_of_memory == counts.runs;
        self.differ.is_empty() && ended(&self.once) && ended(&self.for_good)
    }
}
