//! Laws that hold for every job: the verdict and the figures agree, N fits and N + 1 does not, every command and every format says
//! the same, categories add up, and a program ends with status 0, 1 or 2.
//!
//! The jobs are drawn at random. A few small ones run each time; `cargo test --test laws -- --ignored` draws from the whole zoo:
//! `FIT_CHECK_LAWS=COUNT` and `FIT_CHECK_SEED=SEED` say how many, and which.

mod command;

use std::process::Output;

use command::fit_check;
use serde_json::Value;

/// Small networks, each of another kind.
const SMALL: [&str; 6] = ["alexnet", "resnet-20", "unet", "dcgan", "gpt2", "vit-b-16"];

const CARDS: [&str; 8] = [
    "gtx-1060",
    "rtx-2060",
    "t4",
    "rtx-3060",
    "24GB",
    "l4",
    "a100-80gb",
    "h100",
];

/// The answer to `question`, and its exit status: 0, 1 or 2.
fn ask(question: &str, format: &str) -> (Output, i32) {
    let mut program = fit_check();
    program.args(question.split_whitespace());
    let output = program
        .args(["--quiet", "--format", format])
        .output()
        .unwrap();
    let status = output.status.code();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let status = status.unwrap_or_else(|| panic!("`{question}` was ended by a signal: {stderr}"));
    assert!(
        (0..=2).contains(&status),
        "`{question}` ends with {status}: {stderr}"
    );
    let says_why = status != 2 || stderr.starts_with("error: ");
    assert!(
        says_why || !output.stdout.is_empty(),
        "`{question}` ends with 2 without a word"
    );
    assert!(!stderr.contains("panicked at"), "`{question}`: {stderr}");
    (output, status)
}

/// The answer to `question`; none if there is none.
fn answer(question: &str) -> Option<Value> {
    let (output, status) = ask(question, "json");
    if status == 2 {
        return None;
    }
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn bytes(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number of bytes"))
}

/// A verdict and its figures agree. Returns whether the job fits.
fn agrees(verdict: &Value, question: &str) -> bool {
    let fits = verdict["fits"].as_bool().unwrap();
    let gpu = &verdict["gpu"];
    let available = bytes(&gpu["usable_bytes"]) - bytes(&gpu["overhead_bytes"]);
    let required = bytes(&verdict["required_bytes"]);
    let headroom = verdict["headroom_bytes"].as_i64().unwrap();
    assert_eq!(headroom, available as i64 - required as i64, "{question}");
    let reason = verdict["reason"].as_str().unwrap_or_default();
    match fits {
        true => assert!(
            required <= available && reason.is_empty(),
            "{question}: {verdict}"
        ),
        false => {
            let too_large = reason.contains("too large");
            assert!(required > available || too_large, "{question}: {verdict}");
            assert!(!reason.is_empty(), "{question}: {verdict}");
        }
    }
    fits
}

/// The figures of an estimate add up to the moment that they name.
fn adds_up(estimate: &Value, question: &str) {
    let live = bytes(&estimate["peak"]["live_bytes"]);
    let categories = estimate["at_peak"].as_object().unwrap().values();
    assert_eq!(categories.map(bytes).sum::<u64>(), live, "{question}");
    let phase = &estimate["peak"]["phase"];
    let mut phases = estimate["phases"].as_array().unwrap().iter();
    let is_it =
        |shown: &&Value| bytes(&shown["peak_live_bytes"]) == live && shown["phase"] == *phase;
    assert!(
        phases.any(|shown| is_it(&shown)) || estimate["peak"]["step"] == 0,
        "{question}"
    );
}

/// The other formats say the same as JSON does.
fn formats_agree(question: &str, estimate: &Value, fits: bool) {
    let (csv, _) = ask(question, "csv");
    let mut csv = csv::Reader::from_reader(&*csv.stdout);
    let headers = csv.headers().unwrap().clone();
    let row = csv.records().next().unwrap().unwrap();
    let cell = |name: &str| {
        let place = headers.iter().position(|header| header == name);
        &row[place.unwrap_or_else(|| panic!("{name} is no column"))]
    };
    assert_eq!(cell("fits"), fits.to_string(), "{question}");
    assert_eq!(
        cell("required_bytes"),
        estimate["required_bytes"].to_string(),
        "{question}"
    );
    assert!(cell("framework").starts_with("burn "), "{question}");
    let (page, _) = ask(question, "table");
    let page = String::from_utf8(page.stdout).unwrap();
    assert_eq!(
        page.contains("  does not fit on "),
        !fits,
        "{question}:\n{page}"
    );
    let first = page.lines().next().unwrap();
    assert!(first.contains(" in burn "), "{question}: {first}");
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{question}:\n{page}"
    );
}

/// Draws numbers below a limit (splitmix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    fn of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }
}

/// Every law, of a job that is drawn from `models`.
fn laws_hold(draw: &mut Draw, models: &[&str]) {
    let model = draw.of(models);
    let precision = draw.of(&["fp32", "fp32", "fp16", "bf16", "mixed"]);
    let optimizer = draw.of(&["", "", "--optimizer sgd", "--optimizer adamw"]);
    let other = draw.of(&["", "", "--checkpointing", "--accumulate 2"]);
    let runtime = draw.of(&["cuda", "cuda", "cuda", "vulkan", "wgpu"]);
    let strategy = draw.of(&["", "", "--strategy learner", "--strategy ddp"]);
    let card = draw.of(&CARDS);
    let card = match strategy {
        "--strategy ddp" => format!("2x{card}"),
        _ => card.to_string(),
    };
    let job = format!("{model} --precision {precision} {optimizer} {other}");
    let job = format!("{job} --runtime {runtime} {strategy}");
    let batch = 1 << draw.below(8);
    let question = format!("estimate {job} --batch {batch} --gpu {card}");
    let Some(estimate) = answer(&question) else {
        return;
    };
    let fits = agrees(&estimate, &question);
    adds_up(&estimate, &question);
    formats_agree(&question, &estimate, fits);
    let Some(largest) = answer(&format!("max-batch {job} --gpu {card} --advise=never")) else {
        return;
    };
    let largest = &largest["cards"][0];
    let (most, next) = (
        bytes(&largest["max_batch"]),
        bytes(&largest["next"]["batch"]),
    );
    for (batch, expected) in [(most, true), (next, false)] {
        let question = format!("estimate {job} --batch {batch} --gpu {card}");
        if let Some(estimate) = (batch > 0).then(|| answer(&question)).flatten() {
            assert_eq!(
                agrees(&estimate, &question),
                expected,
                "{question}: {estimate}"
            );
        }
    }
    if let Some(table) = answer(&format!("table {job} --gpu {card}")) {
        assert_eq!(
            table["rows"][0]["cells"][0]["max_batch"], most,
            "table {job} on {card}"
        );
    }
}

#[test]
fn laws_hold_for_a_few_small_jobs() {
    let mut draw = Draw(20_261_129);
    for _ in 0..3 {
        laws_hold(&mut draw, &SMALL);
    }
}

/// The cards of a search are those of which `estimate` says that the job fits.
#[test]
fn a_search_finds_the_cards_that_fit() {
    let job = "alexnet --batch 512";
    let found = answer(&format!("gpus --fits {job}")).unwrap();
    let cards = found["cards"].as_array().unwrap();
    for alias in ["gtx-1060", "rtx-2060", "t4", "rtx-3060", "l4", "h100"] {
        let question = format!("estimate {job} --gpu {alias}");
        let estimate = answer(&question).unwrap();
        let name = &estimate["gpu"]["name"];
        let listed = cards.iter().any(|card| card["gpu"]["name"] == *name);
        assert_eq!(listed, agrees(&estimate, &question), "{question}");
    }
}

#[test]
#[ignore = "takes long: jobs of the whole zoo"]
fn laws_hold_for_the_whole_zoo() {
    let number = |name: &str, default| {
        let typed = std::env::var(name).ok();
        typed.map_or(default, |typed| typed.parse().unwrap())
    };
    let seed = number("FIT_CHECK_SEED", 20_261_129);
    let models: Vec<_> = model_zoo::variants()
        .into_iter()
        .map(|variant| variant.name)
        .collect();
    let mut draw = Draw(seed);
    for job in 0..number("FIT_CHECK_LAWS", 200) {
        eprintln!("job {job} of seed {seed}");
        laws_hold(&mut draw, &models);
    }
}
