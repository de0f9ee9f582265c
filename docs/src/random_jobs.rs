//! The tables about random jobs on CUDA's own runtime, for `docs/accuracy.md`.

use fit_check::output::markdown;
use fit_check_tests::differential::Summary;

use crate::text_table;

/// The outcomes of random jobs: one line for each run of the program `differential`.
///
/// # Errors
///
/// A line is not such an outcome.
pub fn all() -> serde_json::Result<Vec<Summary>> {
    let lines = include_str!("../data/differential.jsonl").lines();
    lines.map(serde_json::from_str).collect()
}

/// How the cases ended, and how far apart the quantities are.
pub(crate) fn tables(summaries: &[Summary]) -> String {
    let ended = summaries.iter().map(|summary| {
        let (first, end) = summary.numbers;
        let counts = [
            summary.cases,
            summary.random,
            summary.limited,
            summary.trained,
            summary.out_of_memory,
            summary.failed,
            summary.agree,
            summary.agree_again,
            summary.not_in_place,
            summary.with_lag,
            summary.false_fits,
            summary.false_refusals,
        ];
        let named = [
            summary.burn.clone(),
            format!("seed {}, {first} to {}", summary.seed, end - 1),
        ];
        let counts = counts.iter().map(u64::to_string);
        named.into_iter().chain(counts).collect()
    });
    let ended = text_table(
        [
            "burn",
            "drawn",
            "cases",
            "random networks",
            "limited memory",
            "trained",
            "ran out of memory",
            "failed",
            "agree in everything",
            "of these, when measured again",
            "only if operands are not overwritten",
            "ended alike only with a queue lag",
            "false fits",
            "false refusals",
        ],
        ended,
    );
    let apart = summaries.iter().flat_map(|summary| {
        summary.quantities.iter().map(|(quantity, tally)| {
            vec![
                summary.burn.clone(),
                quantity.to_string(),
                tally.phases.to_string(),
                tally.equal.to_string(),
                tally.under.to_string(),
                error(tally.lowest),
                error(tally.highest),
            ]
        })
    });
    let apart = text_table(
        [
            "burn",
            "quantity",
            "phases",
            "equal, or in the range",
            "under-estimates",
            "lowest error",
            "highest error",
        ],
        apart.collect::<Vec<_>>(),
    );
    markdown::render(&[ended, apart])
}

fn error(error: f64) -> String {
    match error {
        0.0 => "0".into(),
        error => format!("{:+.4} %", 100.0 * error),
    }
}
