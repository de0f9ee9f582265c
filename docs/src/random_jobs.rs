//! The tables about random jobs on CUDA's own runtime, for `docs/accuracy.md`.

use fit_check::output::{Table, markdown};
use fit_check_tests::differential::Summary;

use crate::jsonl;

/// The outcomes of random jobs: one line for each run of the program `differential`.
///
/// # Errors
///
/// A line is not such an outcome.
pub fn all() -> serde_json::Result<Vec<Summary>> {
    jsonl(include_str!("../data/differential.jsonl"))
}

/// How the cases ended, and how far apart the quantities are.
pub(crate) fn tables(summaries: &[Summary]) -> String {
    let ended = Table::of("", summaries)
        .column("burn", |s| &s.burn)
        .column("drawn", |s| {
            let (first, end) = s.numbers;
            format!("seed {}, {first} to {}", s.seed, end - 1)
        })
        .column("cases", |s| s.cases.to_string())
        .column("random networks", |s| s.random.to_string())
        .column("limited memory", |s| s.limited.to_string())
        .column("trained", |s| s.trained.to_string())
        .column("ran out of memory", |s| s.out_of_memory.to_string())
        .column("failed", |s| s.failed.to_string())
        .column("agree in everything", |s| s.agree.to_string())
        .column("of these, when measured again", |s| {
            s.agree_again.to_string()
        })
        .column("only if operands are not overwritten", |s| {
            s.not_in_place.to_string()
        })
        .column("ended alike only with a queue lag", |s| {
            s.with_lag.to_string()
        })
        .column("false fits", |s| s.false_fits.to_string())
        .column("false refusals", |s| s.false_refusals.to_string());
    let tallies = summaries.iter().flat_map(|summary| {
        let tallies = summary.quantities.iter();
        tallies.map(move |(quantity, tally)| (&summary.burn, quantity, tally))
    });
    let tallies: Vec<_> = tallies.collect();
    let apart = Table::of("", &tallies)
        .column("burn", |(burn, ..)| *burn)
        .column("quantity", |(_, quantity, _)| quantity.to_string())
        .column("phases", |(.., tally)| tally.phases.to_string())
        .column("equal, or in the range", |(.., tally)| {
            tally.equal.to_string()
        })
        .column("under-estimates", |(.., tally)| tally.under.to_string())
        .column("lowest error", |(.., tally)| error(tally.lowest))
        .column("highest error", |(.., tally)| error(tally.highest));
    markdown::render(&[ended.build(), apart.build()])
}

fn error(error: f64) -> String {
    match error {
        0.0 => "0".into(),
        error => format!("{:+.4} %", 100.0 * error),
    }
}
