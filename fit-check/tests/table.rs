//! Tables of largest batches: each cell is right, and so is the page for a browser.

mod command;

use command::fit_check;
use estimator::{Gpu, QueueLag, Runtime};
use fit_check::simulate_step;
use model_zoo::{Input, Job, Precision, Request};
use proptest::prelude::*;
use serde_json::Value;

/// The answer of `fit-check table` with `arguments`.
fn table(arguments: &[&str]) -> Value {
    let mut command = fit_check();
    command.arg("table").args(arguments);
    let output = command.args(["--format", "json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Small cards, with kernels of every kind.
fn cards() -> Vec<&'static Gpu> {
    let driven = |gpu: &&Gpu| gpu.is_driven_by(Runtime::Cuda) && gpu.marketed_gb <= 12.0;
    Gpu::all().iter().filter(driven).collect()
}

/// Whether `estimate` says that so many samples of `job` fit on `gpu`.
fn fits(job: &[&str], gpu: &Gpu, batch: u64) -> bool {
    let mut command = fit_check();
    command.arg("estimate").args(job);
    command.args([
        "--gpu",
        gpu.alias(),
        "--batch",
        &batch.to_string(),
        "--advise=never",
    ]);
    command.output().unwrap().status.code() == Some(0)
}

/// Whether a tuned step of the network `name` completes on a card like `gpu` with this queue lag.
fn completes(name: &str, job: &Job, gpu: &Gpu, queue_lag: QueueLag) -> bool {
    let variant = model_zoo::find(name).unwrap();
    let device = gpu.spec(Runtime::Cuda).with_queue_lag(queue_lag);
    let simulated = simulate_step(&variant, job, device).unwrap();
    simulated.outcome().is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, ..ProptestConfig::default() })]

    #[test]
    fn each_cell_fits_and_the_next_batch_does_not(
        name in prop::sample::select(vec!["resnet-18", "resnet-20", "alexnet"]),
        precision in prop::sample::select(vec![Precision::Fp32, Precision::Fp16, Precision::Mixed]),
        side in 64usize..256,
        two in prop::sample::subsequence(cards(), 2),
    ) {
        let aliases: Vec<_> = two.iter().map(|gpu| gpu.alias()).collect();
        let [formats, image] = [precision.to_string(), side.to_string()];
        let list = aliases.join(",");
        let report = table(&[name, "--gpus", &list, "--precision", &formats, "--image", &image]);
        let job = [name, "--precision", &formats, "--image", &image];
        let cells = report["rows"][0]["cells"].as_array().unwrap();
        prop_assert_eq!(cells.len(), two.len());
        for (gpu, cell) in two.iter().zip(cells) {
            // Some 16-bit kernels need more shared memory than the oldest cards have.
            let Some(most) = cell["max_batch"].as_u64() else {
                prop_assert!(cell["error"].is_string());
                prop_assert!(precision != Precision::Fp32, "{name} on {}: {cell}", gpu.name);
                continue;
            };
            prop_assert!(most == 0 || fits(&job, gpu, most), "{name} {most} on {}", gpu.name);
            prop_assert!(!fits(&job, gpu, most + 1), "{name} {most} + 1 on {}", gpu.name);
        }
    }
}

/// A case that the property above found: the card had been tuned with fewer samples and kept those kernels.
#[test]
fn a_cell_is_of_a_card_that_is_tuned_to_its_batch() {
    let report = table(&[
        "alexnet",
        "--gpus",
        "rtx-2060",
        "--precision",
        "fp16",
        "--image",
        "113",
    ]);
    let most = report["rows"][0]["cells"][0]["max_batch"].as_u64().unwrap();
    let output = fit_check()
        .args([
            "estimate",
            "alexnet",
            "--precision",
            "fp16",
            "--image",
            "113",
        ])
        .args(["--gpu", "rtx-2060", "--batch", &most.to_string()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{most}");
}

/// A case that the property above found: 3,206 samples fit as long as the device's thread is not behind the program.
#[test]
fn a_cell_fits_with_queue_lag_too() {
    let report = table(&[
        "alexnet",
        "--gpus",
        "gtx-1060",
        "--precision",
        "fp16",
        "--image",
        "155",
    ]);
    let cell = &report["rows"][0]["cells"][0];
    let most = cell["max_batch"].as_u64().unwrap();
    let input = Input {
        image: Some([155, 155]),
        ..Input::default()
    };
    let request = Request {
        precision: Precision::Fp16,
        input,
        batch: Some(most as usize + 1),
        ..Request::default()
    };
    let variant = model_zoo::find("alexnet").unwrap();
    let job = request.resolve(&variant).unwrap();
    let card = Gpu::find("gtx-1060").unwrap();
    let endings = [QueueLag::None, QueueLag::Full].map(|lag| completes("alexnet", &job, card, lag));
    assert_eq!(endings, [true, false]);
}

/// The page for a browser needs nothing but itself, and has the batches of the answer in JSON.
#[test]
fn a_page_for_a_browser_has_every_batch() {
    let question = ["alexnet", "--gpus", "gtx-1060,rtx-2060"];
    let report = table(&question);
    let cells = report["rows"][0]["cells"].as_array().unwrap().iter();
    let batches: Vec<_> = cells
        .map(|cell| cell["max_batch"].as_u64().unwrap())
        .collect();
    let mut command = fit_check();
    command.arg("table").args(question);
    let output = command.args(["--format", "html"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = String::from_utf8(output.stdout).unwrap();
    for load in [
        "http:", "https:", "src=", "href", "url(", "@import", "<link", "<object",
    ] {
        assert!(!page.contains(load), "{load} in {page}");
    }
    // 1,234 in `<td class="number" title="…">1,234</td>`; an attribute has no `>`.
    let cells = page.split("<td class=\"number\"").skip(1);
    let shown: Vec<u64> = cells
        .map(|cell| {
            let (_, text) = cell.split_once('>').unwrap();
            let (batch, _) = text.split_once('<').unwrap();
            batch.replace(',', "").parse().unwrap()
        })
        .collect();
    assert_eq!(shown, batches);
}
