//! Holds a recording that is changed to another queue lag against runs with that lag, and what races decide against
//! CUDA's own runtime.

use std::collections::BTreeSet;
use std::sync::Arc;

use estimator::{Bytes, DeviceSpec, Program, QueueLag, Runtime, replay};
#[cfg(all(feature = "autotune", feature = "fusion"))]
use estimator::{Gpu, InPlace, Proposer, StepRuns, Tuning, largest_batch};
use fit_check::measured_job;
use model_zoo::{Precision, Request};
use recording::{BufferId, Event, Recording};

/// The program's calls, and before each allocation what was freed since the one before it. When between two
/// allocations a buffer was freed is not recorded exactly, and no pool can tell.
fn calls_and_frees(recording: &Recording) -> Vec<(Option<Event>, BTreeSet<BufferId>)> {
    let mut freed = BTreeSet::new();
    let mut calls = Vec::new();
    for event in &recording.events {
        match event {
            Event::Free(buffer) => {
                freed.insert(*buffer);
            }
            Event::Allocate(_) => calls.push((Some(*event), std::mem::take(&mut freed))),
            Event::Launch(_) => calls.push((None, BTreeSet::new())),
            other => calls.push((Some(*other), BTreeSet::new())),
        }
    }
    calls
}

/// The buffers of the program, numbered without those of the runtime, which also numbers its own.
fn numbered(recording: &Recording) -> Recording {
    let mut numbers = Vec::new();
    let mut next = 0;
    for buffer in recording.buffers.iter() {
        numbers.push(BufferId(next));
        next += u32::from(!buffer.metadata);
    }
    let mut numbered = recording.clone();
    numbered.events.retain(|event| match event {
        Event::Allocate(buffer) | Event::Free(buffer) => !recording.buffer(*buffer).metadata,
        _ => true,
    });
    Arc::make_mut(&mut numbered.buffers).retain(|buffer| !buffer.metadata);
    for event in &mut numbered.events {
        if let Event::Allocate(buffer) | Event::Free(buffer) = event {
            *buffer = numbers[buffer.0 as usize];
        }
    }
    numbered
}

/// Replays on cards with from half to all of the memory that the step reserved.
fn outcomes(device: &DeviceSpec, recording: &Recording, reserved: Bytes) -> Vec<(bool, Bytes)> {
    let shares = [4, 5, 6, 7, 8];
    let limited = shares.map(|eighths| {
        let memory = Bytes(reserved.0 / 8 * eighths);
        device.clone().with_memory(memory, Bytes::ZERO)
    });
    let devices = limited.iter().chain([device]);
    let outcomes = devices.map(|device| {
        let outcome = replay(device, recording, |buffer| recording.buffer(buffer).bytes);
        (outcome.completed(), outcome.reserved)
    });
    outcomes.collect()
}

#[test]
fn a_recording_shifted_to_a_lag_is_that_of_a_run_with_it() {
    for (name, batch, precision, runtime) in [
        ("resnet-18", 4, Precision::Fp32, Runtime::Cuda),
        ("dcgan", 2, Precision::Fp32, Runtime::Wgpu),
        ("bilstm-cnn-crf", 2, Precision::Mixed, Runtime::Cuda),
        ("transformer-base", 2, Precision::Fp32, Runtime::Cuda),
    ] {
        let variant = model_zoo::find(name).unwrap();
        let request = Request {
            precision,
            ..Request::default()
        };
        let job = request.resolve(&variant).unwrap();
        let step = measured_job(&variant, &job).without_first_runs();
        let device = DeviceSpec::unlimited(runtime);
        let usual = step.simulate(batch, device.clone()).unwrap();
        for lag in QueueLag::REQUIRED {
            let run = step
                .simulate(batch, device.clone().with_queue_lag(lag))
                .unwrap();
            let shifted = usual.recording.with_queue_lag(lag);
            let [of_run, of_shifted] =
                [&run.recording, &shifted].map(|recording| calls_and_frees(&numbered(recording)));
            let first = of_run.iter().zip(&of_shifted).position(|(a, b)| a != b);
            assert_eq!(
                first.map(|first| (&of_run[first], &of_shifted[first])),
                None,
                "{name} with {lag:?}"
            );
            assert_eq!(of_run.len(), of_shifted.len(), "{name} with {lag:?}");
            let [of_run, of_shifted] = [&run.recording, &shifted]
                .map(|recording| (&recording.streams, &recording.reads_back));
            assert_eq!(of_run, of_shifted, "{name} with {lag:?}");
            let [of_run, of_shifted] = [&run.recording, &shifted]
                .map(|recording| outcomes(&device, recording, run.reserved));
            assert_eq!(of_run, of_shifted, "{name} with {lag:?}");
            assert_eq!(
                of_run.last().unwrap().1,
                run.reserved,
                "{name} with {lag:?}"
            );
        }
    }
}

/// CUDA's runtime on the counting driver trained 114 samples of XLM on a TITAN RTX in one of two runs
/// (`docs/data/largest_batches.jsonl`). The step fits without queue lag and with a full queue.
#[test]
#[cfg(all(feature = "autotune", feature = "fusion"))]
fn a_batch_that_trains_by_chance_does_not_fit() {
    let variant = model_zoo::find("xlm-mt-en-fr").unwrap();
    let job = Request::default().resolve(&variant).unwrap();
    let step = measured_job(&variant, &job).without_first_runs();
    let titan = Gpu::find("titan-rtx").unwrap().spec(Runtime::Cuda);
    let run = step.simulate(114, titan.clone()).unwrap();
    assert!(run.outcome().is_ok());
    let fits = |lag: &QueueLag| {
        let recording = run.recording.with_queue_lag(*lag);
        let bytes = |buffer| recording.buffer(buffer).bytes;
        replay(&titan, &recording, bytes).completed()
    };
    assert!(fits(&QueueLag::Full));
    assert!(!QueueLag::REQUIRED.iter().all(fits));
}

/// CUDA's runtime on the counting driver trained 8 samples of StyleGAN on a GTX 1080 Ti in eight of nine runs
/// (`docs/data/largest_batches.jsonl`).
#[test]
#[cfg(all(feature = "autotune", feature = "fusion"))]
fn a_batch_that_runs_out_of_memory_by_chance_may() {
    let variant = model_zoo::find("stylegan").unwrap();
    let job = Request::default().resolve(&variant).unwrap();
    let step = measured_job(&variant, &job).without_first_runs();
    let card = Gpu::find("gtx-1080-ti").unwrap().spec(Runtime::Cuda);
    assert!(step.simulate(8, card.clone()).unwrap().outcome().is_ok());
    // It does not fit, since the run without overwriting does not complete.
    let step = step.only(Some(Tuning::Warm));
    let verdict = StepRuns::of(&step, 8, &card).unwrap();
    let refused = verdict.verdict(&card).unwrap().refused.unwrap();
    assert_eq!(refused.run.in_place, InPlace::Never);
    let proposer = Proposer::learn(&step, &card).unwrap();
    let found = largest_batch(&step, &proposer, &card).unwrap();
    assert!(found.batch < 8, "{}", found.batch);
}
