//! The table about requests for memory that a card refused, for `docs/accuracy.md`.

use fit_check::output::markdown;
use fit_check_tests::differential::{NetworkSpec, RefusalRecord};

use crate::text_table;

/// What became of each job whose requests for memory were refused: one line for each job that `differential --refuse`
/// recorded.
///
/// # Errors
///
/// A line is not such a record.
pub fn all() -> serde_json::Result<Vec<RefusalRecord>> {
    let lines = include_str!("../data/refused_requests.jsonl").lines();
    lines.map(serde_json::from_str).collect()
}

/// How the jobs of `records` ended.
pub(crate) fn table(records: &[RefusalRecord]) -> String {
    let rows = records.iter().map(|record| {
        let network = match &record.case.network {
            NetworkSpec::Zoo(name) => name.clone(),
            NetworkSpec::Random(_) => "a random network".into(),
        };
        let counts = [
            record.requests,
            record.once.runs,
            record.once.trained,
            record.once.agree,
            record.for_good.runs,
            record.for_good.out_of_memory,
            record.for_good.agree,
            record.once.again + record.for_good.again,
        ];
        let counts = counts.iter().map(u64::to_string);
        [network, record.burn.clone()]
            .into_iter()
            .chain(counts)
            .collect()
    });
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
        rows.collect::<Vec<_>>(),
    );
    markdown::render(&[table])
}
