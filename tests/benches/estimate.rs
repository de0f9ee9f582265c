//! The time of an estimate inside a process: `cargo bench`. The required and the reached figures are in
//! `docs/performance.md`.

// The functions that criterion's macros create have no documentation.
#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use estimator::{Analysis, DeviceSpec, Runtime, replay};
use fit_check::simulate_step;
use model_zoo::{OptimizerKind, Request};

fn resnet_50(criterion: &mut Criterion) {
    let variant = model_zoo::find("resnet-50").expect("in the zoo");
    let request = Request {
        batch: Some(32),
        optimizer: Some(OptimizerKind::Adam),
        ..Request::default()
    };
    let job = request.resolve(&variant).expect("the published sizes");
    let spec = DeviceSpec::unlimited(Runtime::Cuda);
    let simulate = || simulate_step(&variant, &job, spec.clone()).expect("a step that runs");
    let simulated = simulate();
    let recording = &simulated.recording;

    let mut group = criterion.benchmark_group("resnet-50, batch 32, adam");
    group.sample_size(10);
    group.bench_function("simulate two steps", |bench| bench.iter(simulate));
    group.bench_function("analyse", |bench| bench.iter(|| Analysis::of(recording)));
    group.bench_function("replay", |bench| {
        bench.iter(|| replay(&spec, recording, |buffer| recording.buffer(buffer).bytes));
    });
    group.bench_function("estimate from the recording", |bench| {
        bench.iter(|| simulated.estimate());
    });
    group.bench_function("estimate", |bench| {
        bench.iter(|| simulate().estimate());
    });
    group.finish();
}

criterion_group!(benches, resnet_50);
criterion_main!(benches);
