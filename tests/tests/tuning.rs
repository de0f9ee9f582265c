//! burn as users run it: it fuses kernels, and tunes them at the first run.
#![cfg(feature = "autotune")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::nn::LinearConfig;
use burn::tensor::{FloatDType, Tensor};
use estimator::{
    Bytes, DeviceSpec, Gpu, InPlace, KernelPreference, Phase, Program, QueueLag, Run, Runtime,
    Simulated, TrainingJob, Tuning, listen, replay, search_devices,
};
use fit_check::{measured_job, simulate_step, training_job};
use model_zoo::{Input, Job, Precision, Request, Variant};
use recording::{BufferId, Event, Recording};

fn card(runtime: Runtime, tuning: Tuning) -> DeviceSpec {
    DeviceSpec::unlimited(runtime).with_tuning(tuning)
}

fn run(spec: DeviceSpec) -> Simulated {
    let variant = model_zoo::find("resnet-18").unwrap();
    let request = Request {
        batch: Some(2),
        input: Input {
            image: Some([64, 64]),
            ..Input::default()
        },
        ..Request::default()
    };
    let job = request.resolve(&variant).unwrap();
    simulate_step(&variant, &job, spec).unwrap()
}

#[test]
fn two_runs_are_the_same_to_the_byte_cold_and_warm() {
    for runtime in [Runtime::Cuda, Runtime::Wgpu] {
        for tuning in [Tuning::Cold, Tuning::Warm] {
            let spec = card(runtime, tuning);
            let [one, other] = [run(spec.clone()), run(spec)];
            // A probe launches as often as the host's clock says, and a warm run makes none.
            let events = [&one, &other].map(|simulated| simulated.recording.events.len());
            assert!(
                tuning == Tuning::Cold || events[0] == events[1],
                "{runtime}"
            );
            assert_eq!(
                one.recording.buffers, other.recording.buffers,
                "{runtime} {tuning}"
            );
            assert_eq!(one.reserved, other.reserved, "{runtime} {tuning}");
            let firsts = [&one, &other].map(|run| Some(run.first_run.as_ref()?.reserved));
            assert_eq!(firsts[0], firsts[1], "{runtime} {tuning}");
        }
    }
}

/// CubeCL launches its probes of arithmetic as often as the host's clock says, and no recording depends on that. Of
/// the buffers that no launch uses, only those of the probes of memory, of a gigabyte each, have no shape but bytes.
#[test]
fn no_recording_has_buffers_of_probes_of_arithmetic() {
    for runtime in [Runtime::Cuda, Runtime::Wgpu] {
        let recording = run(card(runtime, Tuning::Cold)).recording;
        let launches = recording.events.iter().filter_map(|event| match event {
            Event::Launch(launch) => Some(*launch),
            _ => None,
        });
        let used: HashSet<_> = launches
            .flat_map(|launch| [recording.reads(launch), recording.writes(launch)].concat())
            .collect();
        let buffers = (0..).map(BufferId).zip(recording.buffers.iter());
        let probed: HashSet<_> = buffers
            .filter(|(id, _)| !used.contains(id))
            .filter_map(|(_, buffer)| Some(&recording.layouts[buffer.layout?.0 as usize]))
            .filter(|layout| layout.0.iter().all(|tensor| tensor.element_bytes == 1))
            .map(|layout| &layout.0[0].shape[..])
            .collect();
        assert_eq!(probed, HashSet::from([&[1 << 30][..]]), "{runtime}");
    }
}

/// The measured run tunes nothing, and the run before it equals a cold one.
#[test]
fn the_first_run_is_the_cold_one() {
    for runtime in [Runtime::Cuda, Runtime::Wgpu] {
        let warm = run(card(runtime, Tuning::Warm));
        let cold = run(card(runtime, Tuning::Cold));
        let first = warm.first_run.as_ref().expect("something is tuned");
        assert_eq!(first.most_in_use(), cold.most_in_use());
        assert_eq!(first.reserved, cold.reserved);
        assert!(warm.recording.buffers.len() < cold.recording.buffers.len());
        assert!(warm.most_in_use() < first.most_in_use());
        assert!(cold.first_run.is_none());
    }
}

/// The kernels that need the least memory, the kernels that the rule about launches chooses, and the kernels
/// that need the most, in this order of the memory in use.
#[test]
fn the_preference_decides_how_much_memory_kernels_take() {
    let live = |preference| {
        run(card(Runtime::Cuda, Tuning::Warm).with_preference(preference)).most_in_use()
    };
    let [least, expected, most] = [
        KernelPreference::LeastMemory,
        KernelPreference::Expected,
        KernelPreference::MostMemory,
    ]
    .map(live);
    assert!(least <= expected && expected <= most);
    assert!(least < most, "{least} with every preference");
}

/// A card without matrix units is offered no kernels that need them; a card with matrix units uses them.
/// The kernels of this step that divide a product among planes are those with matrix units.
#[test]
fn candidates_are_those_of_the_card() {
    let uses_matrix_units = |compute_capability: u32| {
        let mut device = card(Runtime::Cuda, Tuning::Cold);
        device.card.compute_capability = compute_capability;
        let kernels = run(device).recording.kernels;
        kernels
            .iter()
            .any(|name| name.contains(estimator::upstream::PLANES))
    };
    assert!(!uses_matrix_units(61), "Pascal");
    assert!(uses_matrix_units(86), "Ampere");
}

/// A step runs alike on a device for which burn has learned about it and on a new one. Choices that the tuner
/// made with other samples, another preference or for a card of another generation are forgotten, and what burn found to fuse
/// for that card is what it finds for this one. The tuner chooses alike on a card with CubeCL's
/// pools and on one without (`without_first_runs`).
#[test]
fn a_job_that_ran_before_runs_as_a_new_one() {
    let run = |program: &TrainingJob, batch: u64, device: &DeviceSpec| {
        let simulated = program.simulate(batch, device.clone()).unwrap();
        let recording = simulated.recording;
        // The content of metadata may be a seed.
        let metadata: Vec<_> = recording
            .metadata
            .iter()
            .map(|metadata| metadata.words)
            .collect();
        let calls = (recording.events, recording.launches, metadata);
        let others = (recording.streams, recording.reads_back);
        (calls, others, recording.buffers, simulated.reserved)
    };
    for (name, precision) in [("resnet-20", Precision::Fp32), ("dcgan", Precision::Mixed)] {
        let variant = model_zoo::find(name).unwrap();
        let request = Request {
            precision,
            ..Request::default()
        };
        let job = request.resolve(&variant).unwrap();
        let known = training_job(&variant, &job);
        // Ampere, Pascal and Turing.
        for (batch, preference, compute_capability) in [
            (5, KernelPreference::Expected, 86),
            (5, KernelPreference::Expected, 61),
            (16, KernelPreference::MostMemory, 86),
            (5, KernelPreference::LeastMemory, 75),
            (5, KernelPreference::Expected, 86),
            (16, KernelPreference::Expected, 61),
        ] {
            let mut device = DeviceSpec::unlimited(Runtime::Cuda).with_preference(preference);
            device.card.compute_capability = compute_capability;
            let new = training_job(&variant, &job).without_first_runs();
            let found = run(&known, batch, &device);
            assert!(
                found == run(&new, batch, &device),
                "{name}, batch {batch}, {preference:?}, {compute_capability}"
            );
        }
    }
}

/// A run in which the tuner's calls are made apart is recorded as one in which the tuner has nothing left to choose, and
/// one in which burn searches for what it can fuse as one in which it knows that. The reference makes two runs of each.
#[test]
fn a_first_run_is_recorded_as_the_next_one() {
    listen();
    let small = |runtime| DeviceSpec::unlimited(runtime).with_memory(Bytes::mib(600), Bytes::ZERO);
    let cuda = small(Runtime::Cuda);
    let mut pascal = cuda.clone();
    pascal.card.compute_capability = 61;
    let wgpu = small(Runtime::Wgpu);
    let behind = cuda.clone().with_queue_lag(QueueLag::Full);
    let sparing = cuda.clone().with_in_place(InPlace::Never);
    for (name, precision, devices) in [
        ("resnet-20", Precision::Fp32, vec![cuda, wgpu]),
        ("dcgan", Precision::Mixed, vec![pascal, sparing]),
        ("bert-base", Precision::Mixed, vec![behind]),
    ] {
        let variant = model_zoo::find(name).unwrap();
        let request = Request {
            precision,
            ..Request::default()
        };
        let job = request.resolve(&variant).unwrap();
        for device in devices {
            let reference = training_job(&variant, &job);
            let step = training_job(&variant, &job).without_first_runs();
            let calls = |recording: Recording| {
                let Recording {
                    events,
                    buffers,
                    launches,
                    call_batches,
                    failure,
                    ..
                } = recording;
                (events, buffers, launches, call_batches, failure)
            };
            let sketch = step.sketch(2, device.without_limit()).unwrap();
            let expected = reference.simulate(2, device.without_limit()).unwrap();
            assert!(
                calls(sketch) == calls(expected.recording),
                "{name} {device:?}"
            );
            for batch in [5, 40] {
                let [found, expected] =
                    [&step, &reference].map(|step| step.simulate(batch, device.clone()).unwrap());
                assert_eq!(
                    found.reserved, expected.reserved,
                    "{name} {batch} {device:?}"
                );
                assert!(
                    calls(found.recording) == calls(expected.recording),
                    "{name} {batch} {device:?}"
                );
            }
        }
    }
}

/// A job that nobody asks for its first runs trains one step for each batch, once burn knows what it can fuse.
#[test]
fn a_batch_takes_one_run() {
    listen();
    let runs = AtomicUsize::new(0);
    let step = TrainingJob::new(FloatDType::F32, |samples, run: &mut Run| {
        runs.fetch_add(1, Ordering::Relaxed);
        let device = run.device();
        let layer = LinearConfig::new(96, 48).init(&device);
        run.module("", &layer);
        let output = layer.forward(Tensor::<2>::zeros([samples as usize, 96], &device));
        run.end(Phase::Forward);
        drop(output);
    })
    .without_first_runs();
    let device = DeviceSpec::unlimited(Runtime::Cuda);
    step.sketch(2, device.clone()).unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    for (batch, expected) in [(5, 2), (7, 3), (7, 4), (2, 5)] {
        step.simulate(batch, device.clone()).unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), expected, "batch {batch}");
    }
}

/// VGG-16 in mixed precision.
fn vgg_16() -> (Variant, Job) {
    let variant = model_zoo::find("vgg-16").unwrap();
    let request = Request {
        precision: Precision::Mixed,
        ..Request::default()
    };
    let job = request.resolve(&variant).unwrap();
    (variant, job)
}

/// For the gradient of VGG-16's second convolution burn's tuner tries a kernel with a buffer of 16 GB and more; CubeCL
/// allocates at most a quarter of the card at once. CUDA's runtime on the counting driver trains 285 samples on an
/// RTX 3090 and runs out of memory with 286 (`docs/data/largest_batches.jsonl`). With the kernels of a card without
/// limit, 345 samples would fit.
#[test]
fn the_tuner_chooses_among_what_the_card_can_hold() {
    let (variant, job) = vgg_16();
    let step = training_job(&variant, &job).without_first_runs();
    let card = Gpu::find("rtx-3090").unwrap().spec(Runtime::Cuda);
    let fits = |device: &DeviceSpec, batch| {
        let simulated = step.simulate(batch, device.clone()).unwrap();
        simulated.recording.failure.is_none()
    };
    assert_eq!([285, 286].map(|batch| fits(&card, batch)), [true, false]);
    // The cards of one group share what the tuner learned only where their memory does not matter to it.
    let unlimited = DeviceSpec::unlimited(Runtime::Cuda);
    let [limited, free] = [card.without_limit(), unlimited].map(|device| {
        let simulated = step.simulate(286, device).unwrap();
        simulated.reserved
    });
    assert!(limited > free, "{limited} {free}");
}

/// In a search among cards, one with more memory does not decide which kernels a smaller one can try. On a card that is
/// far too small the step is not run; nor does it fit there.
#[test]
fn a_search_among_cards_knows_what_each_can_hold() {
    let (variant, job) = vgg_16();
    let step = training_job(&variant, &job).without_first_runs();
    let large = DeviceSpec::unlimited(Runtime::Cuda).with_memory(Bytes::gib(1_000), Bytes::ZERO);
    let card = Gpu::find("rtx-3090").unwrap().spec(Runtime::Cuda);
    let small = Gpu::find("rtx-3050").unwrap().spec(Runtime::Cuda);
    let found = search_devices(&step, 286, &[small.clone(), large, card]);
    let [tiny, large, card] = found.try_into().expect("three cards");
    let (tiny, large, card) = (tiny.unwrap(), large.unwrap(), card.unwrap());
    assert!(large.fits() && !card.fits() && !tiny.fits());
    assert!(large.required_bytes < card.required_bytes);
    assert!(
        [large, card]
            .map(|fit| fit.required_bytes)
            .contains(&tiny.required_bytes)
    );
    assert!(step.simulate(286, small).unwrap().outcome().is_err());
}

/// CubeCL moves buffers off pages of an old size when a card is nearly full, but no buffer that a queued launch
/// holds. CUDA's runtime on the counting driver trains BERT-base with 152 samples on a TITAN RTX and runs out of
/// memory with 153 (`docs/data/largest_batches.jsonl`). A replay without the queue finds room for 160.
#[test]
fn a_replay_moves_no_buffer_that_a_queued_launch_holds() {
    let variant = model_zoo::find("bert-base-pretraining").unwrap();
    let job = Request::default().resolve(&variant).unwrap();
    let step = measured_job(&variant, &job).without_first_runs();
    let titan = Gpu::find("titan-rtx").unwrap().spec(Runtime::Cuda);
    let unlimited = step.simulate(160, titan.without_limit()).unwrap();
    let mut recording = unlimited.recording;
    let sizes: Vec<_> = recording
        .buffers
        .iter()
        .map(|buffer| buffer.bytes)
        .collect();
    let fits =
        |recording: &Recording| replay(&titan, recording, |id| sizes[id.0 as usize]).completed();
    assert!(!fits(&recording));
    let limited = step.simulate(160, titan.clone()).unwrap();
    assert!(limited.recording.failure.is_some());
    recording.call_batches.clear();
    assert!(fits(&recording));
}
