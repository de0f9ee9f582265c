//! The table of `docs/accuracy.md` about verdicts: did what fits train, and what does not fit run out of memory?

use std::collections::BTreeMap;

use fit_check::output::{Cell, Table};
use fit_check::records::{LargestBatchRecord, RecordedOutcome};
use fit_check_tests::differential::{Ended, RefusalRecord, Summary};

use crate::records::Records;

/// How the runs of one kind ended, against CUDA's runtime on the counting driver.
#[derive(Clone, Copy, Default)]
struct Verdicts {
    cases: u64,
    as_estimated: u64,
    /// Of these, the ones with every figure as estimated; none where figures were not kept.
    every_figure: Option<u64>,
    /// It was estimated to fit and ran out of memory.
    false_fits: u64,
    /// It was estimated not to fit and trained.
    false_refusals: u64,
}

impl Verdicts {
    fn merge(self, other: Self) -> Self {
        let sum = |a: Option<u64>, b| Some(a.unwrap_or_default() + b);
        Self {
            cases: self.cases + other.cases,
            as_estimated: self.as_estimated + other.as_estimated,
            every_figure: match other.every_figure {
                None => self.every_figure,
                Some(count) => sum(self.every_figure, count),
            },
            false_fits: self.false_fits + other.false_fits,
            false_refusals: self.false_refusals + other.false_refusals,
        }
    }
}

impl From<&LargestBatchRecord> for Verdicts {
    fn from(record: &LargestBatchRecord) -> Self {
        let fits = record.ending == RecordedOutcome::Trained;
        let next_fits = record.next_trained();
        Self {
            cases: 1,
            as_estimated: u64::from(fits && !next_fits),
            every_figure: None,
            false_fits: u64::from(!fits),
            false_refusals: u64::from(next_fits),
        }
    }
}

impl From<&Summary> for Verdicts {
    fn from(summary: &Summary) -> Self {
        Self {
            cases: summary.cases,
            as_estimated: summary.cases - summary.false_fits - summary.false_refusals,
            every_figure: Some(summary.agree),
            false_fits: summary.false_fits,
            false_refusals: summary.false_refusals,
        }
    }
}

impl From<&RefusalRecord> for Verdicts {
    fn from(record: &RefusalRecord) -> Self {
        let runs = record.once.runs + record.for_good.runs;
        let trained = |ended: &Ended| *ended == Ended::Trained;
        let outcomes = record.differ.iter().map(|differing| &differing.outcome);
        let ended = outcomes.map(|outcome| (trained(&outcome.simulated), trained(&outcome.real)));
        let ended: Vec<_> = ended.collect();
        let count = |ending| ended.iter().filter(|ended| **ended == ending).count() as u64;
        let (false_fits, false_refusals) = (count((true, false)), count((false, true)));
        Self {
            cases: runs,
            as_estimated: runs - false_fits - false_refusals,
            every_figure: Some(record.once.agree + record.for_good.agree),
            false_fits,
            false_refusals,
        }
    }
}

/// The verdicts by what was run and the configuration of burn.
pub(crate) fn table(records: &Records) -> Table {
    let largest = records.largest_batches.iter();
    let largest = largest.map(|record| (0, record.burn.autotune, Verdicts::from(record)));
    let random = records.random_jobs.iter();
    let random = random.map(|summary| (1, tuned(&summary.burn), Verdicts::from(summary)));
    let refused = records.refused_requests.iter();
    let refused = refused.map(|record| (2, tuned(&record.burn), Verdicts::from(record)));

    let mut by_kind: BTreeMap<_, Verdicts> = BTreeMap::new();
    for (kind, tuned, verdicts) in largest.chain(random).chain(refused) {
        let sum = by_kind.entry((kind, !tuned)).or_default();
        *sum = sum.merge(verdicts);
    }
    let rows: Vec<_> = by_kind.into_iter().collect();
    Table::of("", &rows)
        .column("what ran", |((kind, plain), _)| {
            let kind = ["largest batches", "random jobs", "refused allocations"][*kind];
            let burn = if *plain { "plain" } else { "default features" };
            format!("{kind}, {burn}")
        })
        .column("cases", |(_, v)| v.cases)
        .column("ended as estimated", |(_, v)| v.as_estimated)
        .column("every figure too", |(_, v)| Cell::from(v.every_figure))
        .column("false “fits”", |(_, v)| v.false_fits)
        .column("false “does not fit”", |(_, v)| v.false_refusals)
        .build()
}

/// Whether these switches of burn, such as `fusion on, autotune off`, have the tuner on.
fn tuned(switches: &str) -> bool {
    switches.contains("autotune on")
}
