//! Compares the simulated card with a real Vulkan driver, without autotune, since a dry run that tunes runs
//! its candidates.
//!
//! The figures come from CubeCL's own dry run (kernels compiled, launches skipped, pages reserved but never
//! mapped) of ResNet-50, batch 32, 224x224, two Adam steps, on Mesa's software device with burn 0.22.1's wgpu
//! runtime, with and without fusion. They were measured there, not by this test.
#![cfg(not(feature = "autotune"))]

use cubecl_server::dry_run::DryRun;
use estimator::{Bytes, DeviceSpec, Phase, Runtime, simulate};
use fit_check::{STEPS, SimulatedObserver, training_device};
use model_zoo::{OptimizerKind, Request};

/// Live allocations and MiB in use after: init; forward, backward and optimizer of step one;
/// the same of step two.
const MEASURED: [(Phase, u64, f64); 7] = [
    (Phase::Init, 106, 0.2),
    (Phase::Forward, 638, 3868.4),
    (Phase::Backward, 535, 236.1),
    (Phase::Optimizer, 695, 292.9),
    (Phase::Forward, 960, 4063.4),
    (Phase::Backward, 857, 431.1),
    (Phase::Optimizer, 695, 292.9),
];

/// MiB that the pools held in the end: 41 pages of 99 MiB, 8 of metadata, 97.5 of weights; with fusion, one
/// page more.
const MEASURED_RESERVED: f64 = if cfg!(feature = "fusion") {
    4263.5
} else {
    4164.5
};

fn mib(bytes: Bytes) -> f64 {
    (bytes.as_f64() / 1_048_576.0 * 10.0).round() / 10.0
}

#[test]
fn resnet_50_is_what_the_driver_saw() {
    let variant = model_zoo::find("resnet-50").unwrap();
    let request = Request {
        batch: Some(32),
        optimizer: Some(OptimizerKind::Adam),
        ..Request::default()
    };
    let job = request.resolve(&variant).unwrap();
    let mut card = DeviceSpec::unlimited(Runtime::Wgpu);
    // Mesa's software device binds at most this.
    card.card.largest_binding = Bytes::mib(128);
    card.card.alignment = 64;
    let simulated = simulate(card, job.precision.float_type(), |run| {
        let _dry_run = DryRun::new();
        let device = training_device(run.device(), &job);
        let observer = &mut SimulatedObserver::new(run);
        let _ = model_zoo::train(&variant, &job, &device, STEPS, observer);
    })
    .unwrap();
    let marks: Vec<_> = simulated
        .recording
        .marks
        .iter()
        .filter(|mark| mark.phase != Phase::Data)
        .map(|mark| (mark.phase, mark.pools.allocations, mib(mark.pools.in_use)))
        .collect();
    assert_eq!(marks, MEASURED);
    let reserved = simulated.recording.marks.last().unwrap().pools.reserved;
    assert_eq!(mib(reserved), MEASURED_RESERVED);
}
