//! Tables of largest batches: each cell is right, and Ctrl-C keeps the cells that are filled.

use std::process::Command;

use estimator::{Gpu, QueueLag, Runtime};
use fit_check::simulate_step;
use model_zoo::{Input, Job, Precision, Request};
use proptest::prelude::*;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fit-check");

/// The answer of `fit-check table` with `arguments`.
fn table(arguments: &[&str]) -> Value {
    let mut command = Command::new(PROGRAM);
    command.arg("table").args(arguments);
    let output = command.args(["--format", "json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Small cards, with kernels of every kind.
fn cards() -> Vec<&'static Gpu> {
    let driven = |gpu: &&Gpu| gpu.is_driven_by(Runtime::Cuda) && gpu.marketed_gb <= 12.0;
    Gpu::all().iter().filter(driven).collect()
}

/// Whether a step of the network `name` completes on a card like `gpu` with this queue lag.
fn fits(name: &str, job: &Job, gpu: &Gpu, queue_lag: QueueLag) -> bool {
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
        let variant = model_zoo::find(name).unwrap();
        let input = Input { image: Some([side, side]), ..Input::default() };
        let request = Request { precision, input, ..Request::default() };
        let job = request.resolve(&variant).unwrap();
        let cells = report["rows"][0]["cells"].as_array().unwrap();
        prop_assert_eq!(cells.len(), two.len());
        for (gpu, cell) in two.iter().zip(cells) {
            // Some 16-bit kernels need more shared memory than the oldest cards have.
            let Some(most) = cell["max_batch"].as_u64() else {
                prop_assert!(cell["error"].is_string());
                continue;
            };
            // A cell's batch fits however far the device's thread is behind the program.
            let fits = |batch: u64| {
                let job = Job { batch: batch as usize, ..job.clone() };
                let mut lags = [QueueLag::None].iter().chain(QueueLag::REQUIRED);
                lags.all(|queue_lag| fits(name, &job, gpu, *queue_lag))
            };
            prop_assert!(most == 0 || fits(most), "{name} {most} on {}", gpu.name);
            prop_assert!(!fits(most + 1), "{name} {most} + 1 on {}", gpu.name);
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
    let output = Command::new(PROGRAM)
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
    let endings = [QueueLag::None, QueueLag::Full].map(|lag| fits("alexnet", &job, card, lag));
    assert_eq!(endings, [true, false]);
}

#[test]
#[cfg(unix)]
fn ctrl_c_leaves_a_table_that_says_that_it_is_partial() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table.json");
    let mut command = Command::new(PROGRAM);
    command.args(["table", "--gpus", "all", "--format", "json", "--output"]);
    let mut child = command.arg(&file).stderr(Stdio::piped()).spawn().unwrap();
    // The program prints progress only when it is at work and handles Ctrl-C.
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains(" of "), "{line}");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let mut printed = String::new();
    stderr.read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(
        printed.ends_with("interrupted: the table is not complete\n"),
        "{printed}"
    );
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["complete"], false);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), model_zoo::variants().len());
    let last = rows.last().unwrap()["cells"].as_array().unwrap();
    assert_eq!(last.last().unwrap()["error"], "interrupted");
}
