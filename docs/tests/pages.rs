//! The pages of `docs/`: the generated ones are up to date, and commands are those of the program.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::Parser;
use clap::error::ErrorKind::MissingRequiredArgument;
use docs::accuracy;
use docs::records::Records;
use fit_check::cli::Cli;
use fit_check::records::{LargestBatchRecord, RecordedOutcome};

#[test]
fn the_page_on_accuracy_is_that_of_the_records() {
    let records = Records::read().expect("records that can be read");
    let page = accuracy::page(&records);
    assert!(
        page == include_str!("../accuracy.md"),
        "docs/accuracy.md is stale: run `cargo run -p docs -- accuracy > docs/accuracy.md`"
    );
}

/// A table on a page is filled by processes of the program that writes the page.
#[test]
fn the_program_that_writes_pages_fills_the_rows_of_tables() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_docs"));
    let output = command.arg("row").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // There is no task on stdin.
    assert!(said.contains("EOF"), "{said}");
}

/// Batches of the page that are two samples below: what CUDA's runtime trained were two steps, and a training needs more memory.
const BELOW_TWO_STEPS: [(&str, Option<&str>, &str); 1] = [("bert-base", Some("fp32"), "RTX 2080")];

/// No largest batch on the page is above one that CUDA's runtime trained while the next ran out of memory, or further below it
/// than one sample or a tenth. Those were trained with tuned kernels in one run of two steps, and a batch of the page fits in
/// every run of the verdict: with each lag, where burn overwrites nothing, and in a long training.
#[test]
fn the_batches_on_the_page_were_trained() {
    let records = Records::read().expect("records that can be read");
    let trained = |record: &&LargestBatchRecord| {
        let ended = (record.ending, record.next_ending);
        !record.burn.fusion && ended == (RecordedOutcome::Trained, RecordedOutcome::OutOfMemory)
    };
    let trained: Vec<_> = records.largest_batches.iter().filter(trained).collect();
    let page = include_str!("../batch_sizes.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let mut rows = rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let header = rows.next().expect("a header");
    let mut cells = 0;
    for row in rows.filter(|row| row.len() == header.len()) {
        let [_, model, _, precision, unit] = row[..5] else {
            panic!("a row without names: {row:?}");
        };
        for (card, batch) in header.iter().zip(&row).skip(5) {
            // Nothing can be trained where not one sample fits, or burn has no kernel.
            let batch: u64 = batch.replace(',', "").parse().unwrap_or(0);
            if batch == 0 {
                continue;
            }
            // "mixed (fp16)"
            let precision = precision.split(' ').next();
            let below = match BELOW_TWO_STEPS.contains(&(model, precision, *card)) {
                true => 2,
                false => 1,
            };
            let found = trained.iter().any(|record| {
                let tokens = record.input.seq.max(record.input.src_seq).unwrap_or(1);
                let factor = if unit == "tokens" { tokens as u64 } else { 1 };
                let most = record.batch * factor;
                record.model == model
                    && Some(record.precision.to_string().as_str()) == precision
                    && record.device.name.ends_with(card)
                    && (most - (most / 10).max(below * factor)..=most).contains(&batch)
            });
            assert!(
                found,
                "{model} {precision:?} on {card}: no record near {batch} {unit}"
            );
            cells += 1;
        }
    }
    assert_eq!(cells, 167);
}

/// Every command on a page can be typed, as far as its options go. Tests of `fit-check` run most of them.
#[test]
fn commands_on_pages_are_those_of_the_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root).expect("this folder");
    let pages = pages.map(|page| page.expect("a file").path());
    // This one shows what is refused.
    let pages = pages.filter(|page| !page.ends_with("bad_input.md"));
    let pages = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    let mut commands = 0;
    for page in pages.chain([root.join("../README.md")]) {
        let text = std::fs::read_to_string(&page).expect("a page");
        for command in typed(&text) {
            commands += 1;
            let parsed = Cli::try_parse_from(command.split_whitespace());
            // `fit-check run` in a sentence is only its name.
            let names_it = |error: &clap::Error| error.kind() == MissingRequiredArgument;
            if let Err(error) = parsed
                && error.use_stderr()
                && !names_it(&error)
            {
                panic!("{}: `{command}`: {error}", page.display());
            }
        }
    }
    assert!(commands > 50, "only {commands} commands were found");
}

/// The commands of `page`, in a sentence or after a prompt.
fn typed(page: &str) -> impl Iterator<Item = &str> {
    let after_prompt = page.lines().filter_map(|line| line.strip_prefix("$ "));
    let in_text = page
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let commands = after_prompt.chain(in_text);
    commands.filter(|command| command.starts_with("fit-check "))
}
