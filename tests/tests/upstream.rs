//! Tests of undocumented details of burn and CubeCL that this project relies on: each fails by name when burn changes
//! its detail. The head of `simulated_card::upstream` lists the details that have no such test.
#![cfg(feature = "autotune")]

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use burn::nn::LinearConfig;
use burn::nn::conv::Conv2dConfig;
use burn::tensor::{FloatDType, Tensor};
use burn_cubecl::cubecl::ir::{ElemType, MemoryDeviceProperties, UIntKind};
use burn_cubecl::cubecl::prelude::InputScalar;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    Claim, ErrorGraph, ManagedMemoryHandle, MemoryConfiguration, MemoryManagement,
    MemoryManagementOptions,
};
use cubecl_server::storage::BytesStorage;
use estimator::{
    Bytes, DeviceSpec, Error, Phase, Program, Run, Runtime, Simulated, SimulatedCard, TrainingJob,
    Tuning, listen, simulate, tuner_requests, upstream,
};

/// A matrix product of 16-bit floats, with tuned kernels, on a card of this compute capability.
fn product(compute_capability: u32) -> Result<Simulated, Error> {
    let mut device = DeviceSpec::unlimited(Runtime::Cuda).with_tuning(Tuning::Cold);
    device.card.compute_capability = compute_capability;
    simulate(device, FloatDType::F16, |run: &mut Run| {
        let device = run.device();
        let layer = LinearConfig::new(256, 256).init(&device);
        run.module("", &layer);
        let output = layer.forward(Tensor::<2>::zeros([256, 256], &device));
        run.end(Phase::Forward);
        drop(output);
    })
}

/// A convolution of three small images with so many channels before and after it, and a square kernel, on `device`.
fn convolution(
    device: DeviceSpec,
    dtype: FloatDType,
    channels: [usize; 2],
    kernel: usize,
) -> Simulated {
    let simulated = simulate(device, dtype, |run: &mut Run| {
        let device = run.device();
        let layer = Conv2dConfig::new(channels, [kernel; 2]).init(&device);
        run.module("", &layer);
        let output = layer.forward(Tensor::<4>::zeros([3, channels[0], 30, 6], &device));
        run.end(Phase::Forward);
        drop(output);
    });
    simulated.unwrap()
}

#[test]
fn the_tuners_log_names_its_choices() {
    listen();
    let choices = product(86).unwrap().choices;
    assert!(
        !choices.is_empty(),
        "no line of `{}` was read",
        upstream::TUNER_LOG
    );
    assert!(choices.iter().all(|choice| !choice.chosen.is_empty()));
}

#[test]
fn the_tuners_log_tells_when_it_is_asked() {
    listen();
    let before = tuner_requests();
    let choices = product(86).unwrap().choices;
    let requests = tuner_requests() - before;
    assert!(
        requests >= choices.len() as u64,
        "{requests} lines of `{}` for {} choices",
        upstream::TUNER_REQUESTS,
        choices.len()
    );
}

/// Where the tuner has room for no candidate, it takes the first, and says so in a log of its own. If that was not read,
/// the calls of the program would count as calls of the tuner until the phase ends, and the step would run again.
#[test]
fn the_tuners_log_tells_that_it_could_time_no_kernel() {
    listen();
    let runs = AtomicUsize::new(0);
    let step = TrainingJob::new(FloatDType::F32, |samples, run: &mut Run| {
        runs.fetch_add(1, Ordering::Relaxed);
        let device = run.device();
        let layer = LinearConfig::new(1024, 1024).init(&device);
        run.module("", &layer);
        let output = layer.forward(Tensor::<2>::zeros([512 + samples as usize, 1024], &device));
        run.end(Phase::Forward);
        drop(output);
    })
    .without_first_runs();
    let mut device = DeviceSpec::unlimited(Runtime::Cuda);
    device.simulation.largest_trial = Some(Bytes::mib(1));
    step.simulate(1, device.clone()).unwrap();
    let before = (tuner_requests(), runs.load(Ordering::Relaxed));
    let choices = step.simulate(2, device).unwrap().choices;
    assert!(tuner_requests() > before.0 && choices.is_empty());
    assert_eq!(
        runs.load(Ordering::Relaxed) - before.1,
        1,
        "no line of `{}` was read",
        upstream::TUNER_UNTIMED
    );
}

/// burn fuses the two operations of a step, and searches for that once.
#[cfg(feature = "fusion")]
#[test]
fn the_log_of_fusion_tells_when_burn_searches() {
    listen();
    let runs = AtomicUsize::new(0);
    let step = TrainingJob::new(FloatDType::F32, |samples, run: &mut Run| {
        runs.fetch_add(1, Ordering::Relaxed);
        let device = run.device();
        let layer = LinearConfig::new(64, 64).init(&device);
        run.module("", &layer);
        let mut output = layer.forward(Tensor::<2>::zeros([samples as usize, 64], &device));
        if samples > 10 {
            output = output.exp() * 2.0;
        }
        run.end(Phase::Forward);
        drop(output);
    })
    .without_first_runs();
    let device = DeviceSpec::unlimited(Runtime::Cuda);
    step.simulate(5, device.clone()).unwrap();
    let runs_with = |batch| {
        let before = runs.load(Ordering::Relaxed);
        step.simulate(batch, device.clone()).unwrap();
        runs.load(Ordering::Relaxed) - before
    };
    assert_eq!(runs_with(7), 1, "nothing new is fused");
    assert_eq!(
        runs_with(11),
        2,
        "no line of `{}` was read",
        upstream::FUSION_LOG
    );
    assert_eq!(runs_with(13), 1, "the same is fused");
}

/// Compute capability 8.6 has matrix units and 6.1 has none (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
#[test]
fn kernels_with_matrix_units_are_known_by_their_name() {
    let uses_units = |compute_capability| {
        let kernels = product(compute_capability).unwrap().recording.kernels;
        kernels.iter().any(|name| name.contains(upstream::PLANES))
    };
    assert!(uses_units(86));
    assert!(!uses_units(61));
}

/// A convolution to one channel is the product of a matrix with a vector. Planes can make it, but not with matrix
/// units, so it takes as long as a direct convolution, which needs a launch less. CUDA's own runtime chooses it on the
/// counting driver (`differential --seed 60 --first 1024 --cases 1`).
#[test]
fn planes_that_multiply_vectors_are_known_by_their_arguments() {
    listen();
    let mut device = DeviceSpec::unlimited(Runtime::Cuda).with_tuning(Tuning::Cold);
    device.card.compute_capability = 61;
    let simulated = convolution(device, FloatDType::BF16, [2, 1], 1);
    let choices = simulated.choices;
    let chosen = choices
        .iter()
        .find(|choice| choice.operation.starts_with("ConvAutotuneKey"));
    assert_eq!(chosen.unwrap().chosen, "conv_direct");
}

#[test]
fn a_thread_of_a_device_is_known_by_its_name() {
    let card = SimulatedCard::new(DeviceSpec::unlimited(Runtime::Cuda)).unwrap();
    let name = card
        .run(|| std::thread::current().name().map(String::from))
        .unwrap();
    let name = name.expect("CubeCL names its threads");
    assert!(upstream::is_device_thread(&name), "{name}");
}

#[test]
fn an_overflow_of_a_throughput_probe_is_known_by_its_file() {
    static FILE: Mutex<String> = Mutex::new(String::new());
    let usual = std::panic::take_hook();
    let here = std::thread::current().id();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() != here {
            return;
        }
        let file = panic.location().map(|place| place.file().to_string());
        *FILE.lock().unwrap() = file.unwrap_or_default();
    }));
    // A probe passes its repetitions on like this, to a kernel with 32-bit addresses.
    let overflow =
        std::panic::catch_unwind(|| InputScalar::new(1_u64 << 32, ElemType::UInt(UIntKind::U32)));
    std::panic::set_hook(usual);
    assert!(overflow.is_err());
    let file = FILE.lock().unwrap();
    assert!(upstream::is_probe_overflow(&file), "{file}");
}

#[test]
fn a_buffer_without_memory_is_known_by_its_error() {
    let mut memory = MemoryManagement::from_configuration(
        BytesStorage::default(),
        &MemoryDeviceProperties::new(1 << 20, 32),
        MemoryConfiguration::default(),
        Arc::new(ServerLogger::default()),
        MemoryManagementOptions::new("test"),
    );
    let never = ManagedMemoryHandle::new();
    let claim = Claim::Unallocated(never.descriptor().id);
    let asked = memory.get_resource(never.binding(), None, None).err();
    let asked = asked.expect("no memory was reserved for it").to_string();
    assert!(upstream::is_unallocated(&asked), "{asked}");
    let reported = ErrorGraph::default().reports([claim].into_iter()).err();
    let reported = reported.expect("nothing was written to it").to_string();
    assert!(upstream::is_unallocated(&reported), "{reported}");
}

/// With fusion, burn turns on default features of crates below it. If the plain configuration had other features of these,
/// they and all that depend on them, CubeCL's kernels too, would be compiled a second time. See `burn-std` in the
/// workspace's `Cargo.toml`.
#[test]
fn both_configurations_share_what_is_below_burn() {
    let features = |options: &[&str]| -> BTreeSet<String> {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--workspace", "--locked"])
            .args(["--edges", "normal", "--prefix", "none"])
            .args(["--format", "{p} {f}"])
            .args(options)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let shared = ["cubecl", "cubek-", "burn-backend ", "burn-ir ", "burn-std "];
        let crates = String::from_utf8(output.stdout).unwrap();
        crates
            .lines()
            .filter(|line| shared.iter().any(|name| line.starts_with(name)))
            .map(|line| line.trim_end_matches(" (*)").to_string())
            .collect()
    };
    let default = features(&[]);
    assert!(default.len() > 20, "{default:?}");
    assert_eq!(default, features(&["--no-default-features"]));
}
