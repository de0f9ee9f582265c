//! `cargo fit-check` on a program that does not know fit-check.
#![cfg(not(any(feature = "fusion", feature = "autotune")))]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Distribution, FloatDType, Int, Tensor};
use estimator::{Bytes, DeviceSpec, Phase, Runtime, Simulated, simulate};
use serde_json::Value;

fn own_training() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/own_training")
}

/// `cargo fit-check` in the folder `at`, as cargo calls it.
fn cargo_fit_check(at: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cargo-fit-check"))
        .arg("fit-check")
        .args(args)
        .current_dir(at)
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The network of `programs/own_training`.
#[derive(Module, Debug)]
struct Network {
    first: Linear,
    second: Linear,
    third: Linear,
    relu: Relu,
}

/// The same training, in a program that marks the ends of its steps.
fn simulated() -> Simulated {
    let card = DeviceSpec::unlimited(Runtime::Cuda);
    let trained = simulate(card, FloatDType::F32, |run| {
        let device = run.device();
        let mut network = Network {
            first: LinearConfig::new(1024, 1024).init(&device),
            second: LinearConfig::new(1024, 1024).init(&device),
            third: LinearConfig::new(1024, 16).init(&device),
            relu: Relu::new(),
        };
        let mut adam = AdamConfig::new().init();
        let loss = CrossEntropyLossConfig::new().init(&device);
        for _ in 0..3 {
            let images = Tensor::<2>::random([256, 1024], Distribution::Default, &device);
            let classes = Tensor::<1, Int>::zeros([256], &device);
            let hidden = network.relu.forward(network.first.forward(images));
            let hidden = network.relu.forward(network.second.forward(hidden));
            let error = loss.forward(network.third.forward(hidden), classes);
            let _: f32 = error.clone().into_scalar();
            let gradients = GradientsParams::from_grads(error.backward(), &network);
            network = adam.step(1e-3, network, gradients);
            run.end(Phase::Optimizer);
        }
    });
    trained.unwrap()
}

/// The card's thread executes the program's calls while the program goes on, so a tensor that the program
/// drops late is in use for longer. The tensors here are small: 3 KiB were seen.
const LATE: Bytes = Bytes(64 << 10);

/// A page of CubeCL's pools, which one more buffer can take.
const PAGE: Bytes = Bytes::mib(8);

/// Bytes of the weight of a hidden layer.
const LARGE: u64 = 4 * 1024 * 1024;

/// Parameters of the network.
const PARAMETERS: u64 = 2 * (1024 * 1024 + 1024) + 1024 * 16 + 16;

fn assert_near(found: u64, expected: Bytes, margin: Bytes, what: &str) {
    assert!(
        found.abs_diff(expected.0) <= margin.0,
        "{what}: {found} bytes found, {} expected",
        expected.0
    );
}

#[test]
fn an_unchanged_program_is_measured_like_one_that_says_where_its_steps_end() {
    let lock = own_training().join("Cargo.lock");
    let before = std::fs::read(&lock).unwrap();
    let args = ["--quiet", "--format", "json", "--gpu", "8GB"];
    let output = cargo_fit_check(&own_training(), &args);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    assert_eq!(std::fs::read(&lock).unwrap(), before);

    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ending"], "steps");
    assert_eq!(report["steps"]["count"], 2);
    assert_eq!(report["cards"][0]["fits"], true);
    let expected = simulated();
    let peak = &report["peak"];
    let bytes = |name: &str| peak[name].as_u64().unwrap();
    assert_near(bytes("live_bytes"), expected.most_in_use(), LATE, "live");
    assert_near(bytes("reserved_bytes"), expected.reserved, PAGE, "reserved");
    assert_near(
        bytes("required_bytes"),
        expected.required(),
        PAGE,
        "required",
    );
    // While Adam updates the last of the large weights, all weights, gradients and two moments are in use,
    // and one more tensor of the size of that weight.
    let held = Bytes(4 * 4 * PARAMETERS + LARGE);
    assert_near(bytes("live_bytes"), held, LATE, "live by hand");
    // At least the weights of two layers, with two moments each.
    let kinds = report["held"].as_array().unwrap().iter();
    let kinds = kinds.filter(|held| held["each_bytes"] == LARGE);
    let count: u64 = kinds.map(|held| held["count"].as_u64().unwrap()).sum();
    assert!(count >= 6, "{report}");

    let output = cargo_fit_check(&own_training(), &["--quiet", "--memory", "20MiB"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));

    // This program ends before there are two equal steps.
    let output = cargo_fit_check(&own_training(), &["--quiet", "--", "1"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("the program ended by itself"), "{page}");

    let output = cargo_fit_check(&own_training(), &["--quiet", "--", "many"]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("a number of steps"), "{message}");
    assert!(
        message.contains("error: the program failed: exit status: 101"),
        "{message}"
    );
}

/// With burn's default features the program fuses kernels and tunes them while it runs, so the tuner's trials
/// make the peak. A step holds weights, gradients and two moments, and at most one more tensor of the size of
/// a large weight; with fusion it may not need that one.
#[test]
#[ignore = "compiles CubeCL and burn once more, with their default features: cargo test --workspace --no-default-features --test cargo -- --ignored"]
fn a_program_with_burns_default_features_is_measured_in_its_first_run() {
    let args = ["--quiet", "--format", "json", "--features", "burn/default"];
    let output = cargo_fit_check(&own_training(), &args);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ending"], "steps");
    assert_eq!(report["tuned"], true);
    let held = 4 * PARAMETERS;
    let in_step = report["steps"]["live_bytes"].as_u64().unwrap();
    assert!(
        (4 * held..=4 * held + LARGE + LATE.0).contains(&in_step),
        "{report}"
    );
    assert!(report["peak"]["live_bytes"].as_u64().unwrap() > in_step);
}
