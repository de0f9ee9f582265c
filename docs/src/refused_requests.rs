//! The table about requests for memory that a card refused, for `docs/accuracy.md`.

use std::collections::BTreeMap;

use fit_check::output::markdown;
use fit_check_tests::differential::{NetworkSpec, RefusalRecord};

use crate::{jsonl, text_table};

/// What became of each job whose requests for memory were refused: one line for each job that `differential --refuse`
/// recorded.
///
/// # Errors
///
/// A line is not such a record.
pub fn all() -> serde_json::Result<Vec<RefusalRecord>> {
    jsonl(include_str!("../data/refused_requests.jsonl"))
}

/// How the jobs of `records` ended, and all jobs of each configuration of burn together.
pub(crate) fn table(records: &[RefusalRecord]) -> String {
    let mut rows = Vec::new();
    let mut totals: BTreeMap<&str, (usize, [u64; COUNTS])> = BTreeMap::new();
    for record in records {
        let network = match &record.case.network {
            NetworkSpec::Zoo(name) => name.clone(),
            NetworkSpec::Random(_) => "a random network".into(),
        };
        let counts = counts(record);
        let (jobs, sums) = totals.entry(&record.burn).or_default();
        *jobs += 1;
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
        rows.push(row(network, &record.burn, counts));
    }
    for (burn, (jobs, sums)) in totals {
        rows.push(row(format!("all {jobs} jobs"), burn, sums));
    }
    let table = text_table(
        [
            "network",
            "burn",
            "requests of the job",
            "refused once",
            "of these, trained on both sides",
            "of these, agree in everything",
            "refused for good",
            "of these, ran out of memory on both sides",
            "of these, agree in everything",
            "of all runs, agree when measured again",
        ],
        rows,
    );
    markdown::render(&[table])
}

/// The columns with numbers.
const COUNTS: usize = 8;

/// The numbers of a job, in the order of the columns.
fn counts(record: &RefusalRecord) -> [u64; COUNTS] {
    let (once, for_good) = (record.once, record.for_good);
    [
        record.requests,
        once.runs,
        once.trained,
        once.agree,
        for_good.runs,
        for_good.out_of_memory,
        for_good.agree,
        once.again + for_good.again,
    ]
}

fn row(network: String, burn: &str, counts: [u64; COUNTS]) -> Vec<String> {
    let counts = counts.iter().map(u64::to_string);
    [network, burn.into()].into_iter().chain(counts).collect()
}
