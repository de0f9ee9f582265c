//! The behaviour of a simulated card.
//!
//! The file is long because it has a test of each kind of thing that a program can do to a card.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use burn::tensor::{DType, Device, FloatDType, Tensor};
#[cfg(not(any(feature = "fusion", feature = "autotune")))]
use estimator::InPlace;
use estimator::{
    Analysis, Bytes, DeviceSpec, Phase, Runtime, Simulated, SimulatedCard, Tuning, fits, replay,
    simulate,
};
use fit_check::simulate_step;
use model_zoo::{Input, Job, OptimizerKind, Precision, Request, Variant};

fn resnet(name: &str, batch: usize, precision: Precision) -> (Variant, Job) {
    let variant = model_zoo::find(name).unwrap();
    let request = Request {
        batch: Some(batch),
        precision,
        optimizer: Some(OptimizerKind::Adam),
        ..Request::default()
    };
    let job = request.resolve(&variant).unwrap();
    (variant, job)
}

fn run(name: &str, batch: usize, precision: Precision, spec: &DeviceSpec) -> Simulated {
    let (variant, job) = resnet(name, batch, precision);
    simulate_step(&variant, &job, spec.clone()).unwrap()
}

fn unlimited() -> DeviceSpec {
    DeviceSpec::unlimited(Runtime::Cuda)
}

#[test]
fn the_patch_is_in_force() {
    let mut spec = unlimited();
    spec.card.name = "a card of this test".into();
    let card = SimulatedCard::new(spec).unwrap();
    let name = card.device().identity().map(|identity| identity.name);
    assert_eq!(
        name.as_deref(),
        Some("a card of this test"),
        "burn's ROCm runtime is not the simulated card: the root manifest must say \
         [patch.crates-io] cubecl-hip = {{ path = \"estimator/hip-shim\" }}"
    );
}

/// The live bytes of each mark are those that CubeCL's own pools report, to the byte.
#[test]
fn the_recording_agrees_with_the_pools() {
    for runtime in [Runtime::Cuda, Runtime::Wgpu, Runtime::Vulkan] {
        let simulated = run(
            "resnet-18",
            2,
            Precision::Fp32,
            &DeviceSpec::unlimited(runtime),
        );
        let recording = &simulated.recording;
        let timeline = Analysis::of(recording).timeline;
        let phases = timeline.phases(recording);
        assert_eq!(phases.len(), recording.marks.len());
        for (phase, mark) in phases.iter().zip(&recording.marks) {
            match runtime {
                Runtime::Cuda => assert_eq!(phase.live_bytes, mark.pools.in_use),
                // wgpu keeps the metadata of launches in a memory beside the buffers, no content twice.
                _ => {
                    let metadata = recording.metadata.iter();
                    let words = metadata.map(|metadata| u64::from(metadata.words));
                    let most = phase.live_bytes + Bytes(8 * words.sum::<u64>());
                    let in_use = mark.pools.in_use;
                    assert!(
                        phase.live_bytes <= in_use && in_use <= most,
                        "{runtime}: {in_use} in use, not {} to {most}",
                        phase.live_bytes
                    );
                }
            }
        }
    }
}

/// In burn's plain configuration, a prototype of this design found these bytes in use after the second
/// forward pass of ResNet-50 with Adam on a CUDA-like card. The prototype did not model the metadata of
/// launches, which a CUDA card keeps in its pools too, so the test leaves them out.
#[test]
#[cfg(not(any(feature = "fusion", feature = "autotune")))]
fn live_bytes_are_affine_in_the_batch() {
    let after_second_forward = |batch: usize, precision: Precision| -> u64 {
        let simulated = run("resnet-50", batch, precision, &unlimited());
        let recording = &simulated.recording;
        let analysis = Analysis::of(recording);
        let mark = recording
            .marks
            .iter()
            .rposition(|mark| mark.phase == Phase::Forward)
            .unwrap();
        analysis
            .categories
            .buffers_at(mark)
            .filter(|(buffer, _)| !recording.buffer(*buffer).metadata)
            .map(|(buffer, _)| recording.buffer(buffer).bytes.0)
            .sum()
    };
    let measured = [
        (1, 452_177_408),
        (2, 581_299_712),
        (3, 710_422_016),
        (8, 1_356_033_536),
        (32, 4_454_968_832),
    ];
    for (batch, bytes) in measured {
        assert_eq!(
            after_second_forward(batch, Precision::Fp32),
            bytes,
            "batch {batch}"
        );
    }
    assert_eq!(after_second_forward(32, Precision::Fp16), 2_270_605_824);
}

/// In burn's plain configuration, two steps of DCGAN at batch 2 on Mesa's software device reserved
/// 129,703,840 bytes on an idle machine and 139,141,024 on a busy one: a page of 9 MiB more.
#[test]
#[cfg(not(any(feature = "fusion", feature = "autotune")))]
fn a_thread_that_is_behind_finds_other_pages() {
    use estimator::QueueLag;
    let reserved = |queue_lag| {
        let spec = DeviceSpec::unlimited(Runtime::Wgpu).with_queue_lag(queue_lag);
        run("dcgan", 2, Precision::Fp32, &spec).reserved
    };
    let more = reserved(QueueLag::Full).saturating_sub(reserved(QueueLag::None));
    assert_eq!(more, Bytes(139_141_024 - 129_703_840));
}

/// Computes `x + 1` of a tensor with so many rows of 4 KiB beside other tensors of its size, and after small ones. It
/// overwrites `x` where nothing else uses `x`: burn asks CubeCL (`can_mut`).
/// With fusion, one kernel would do both.
#[cfg(not(any(feature = "fusion", feature = "autotune")))]
fn increment(rows: usize, others: usize, small_tensors: usize, device: DeviceSpec) -> Simulated {
    let device = device.with_tuning(Tuning::Cold);
    let simulated = simulate(device, FloatDType::F32, |run| {
        let device = run.device();
        let ones = || Tensor::<2>::ones([rows, 1024], &device);
        let _others: Vec<_> = (0..others).map(|_| ones()).collect();
        let x = ones();
        let small = |_| Tensor::<1>::ones([1], &device);
        let _small: Vec<_> = (0..small_tensors).map(small).collect();
        let y = x + 1;
        run.input(&y);
        run.end(Phase::Forward);
    });
    simulated.unwrap()
}

/// Each small tensor takes two calls, and CubeCL hands over 32 at once. While the device's thread may be allocating `x`,
/// burn does not overwrite it: in the batch of calls after the one with that allocation, and neither in that nor later.
#[test]
#[cfg(not(any(feature = "fusion", feature = "autotune")))]
fn an_operand_that_is_being_allocated_is_not_overwritten() {
    let most = |in_place, small| {
        let device = unlimited().with_in_place(in_place);
        increment(1024, 0, small, device).most_in_use()
    };
    let tensor = Bytes(4 << 20);
    for (small, overwrites) in [(0, true), (14, true), (16, false), (29, false), (33, true)] {
        let overwritten = most(InPlace::WhenPossible, small);
        assert!(overwritten >= tensor && overwritten < tensor + tensor);
        let never = most(InPlace::Never, small);
        assert_eq!(never < tensor + tensor, overwrites, "{small}");
    }
}

#[test]
fn a_replay_reserves_what_the_run_did() {
    for runtime in [Runtime::Cuda, Runtime::Wgpu] {
        let spec = DeviceSpec::unlimited(runtime);
        let simulated = run("resnet-18", 4, Precision::Fp32, &spec);
        let recording = &simulated.recording;
        let outcome = replay(&spec, recording, |buffer| recording.buffer(buffer).bytes);
        assert!(outcome.completed());
        assert_eq!(outcome.reserved, simulated.reserved);
    }
}

/// `required` is the least memory: the step completes with it and does not complete with one MiB less. Both
/// are run there, not only replayed.
#[test]
fn required_is_the_least_memory() {
    let spec = unlimited();
    let simulated = run("resnet-50", 8, Precision::Fp32, &spec);
    let estimate = simulated.estimate().unwrap();
    let peak = &estimate.peak;
    assert!(peak.live_bytes <= peak.required_bytes);
    assert!(peak.required_bytes <= peak.reserved_bytes + Bytes::mib(1));
    assert_eq!(estimate.at_peak.total(), peak.live_bytes);
    let with = |memory: Bytes| {
        let card = spec.clone().with_memory(memory, Bytes::ZERO);
        run("resnet-50", 8, Precision::Fp32, &card)
            .recording
            .failure
    };
    assert_eq!(with(peak.required_bytes), None);
    assert!(with(peak.required_bytes - Bytes::mib(1)).is_some());
}

#[test]
fn a_full_card_says_which_allocation_and_where() {
    let card = unlimited().with_memory(Bytes::mib(2_000), Bytes::ZERO);
    let simulated = run("resnet-50", 32, Precision::Fp32, &card);
    let recording = &simulated.recording;
    let refused = simulated
        .outcome()
        .expect_err("4.2 GiB do not fit into 2,000 MiB");
    assert_eq!(refused.phase, Phase::Forward);
    assert!(
        refused
            .layer
            .as_deref()
            .is_some_and(|layer| layer.starts_with("layer"))
    );
    assert!(refused.live <= Bytes::mib(2_000));
    // The recording stops at the end of that phase.
    assert_eq!(recording.marks.last().unwrap().phase, Phase::Forward);
    assert_eq!(recording.marks.len(), 3);
}

/// A CUDA card refuses a tensor larger than a quarter of its memory, however empty it is.
#[test]
fn a_tensor_beyond_the_largest_page_is_refused_as_such() {
    let spec = unlimited().with_memory(Bytes::mib(1_000), Bytes::ZERO);
    let simulated = simulate(spec, FloatDType::F32, |run| {
        let tensor = Tensor::<2>::zeros([300, 1 << 18], &run.device());
        run.end(Phase::Data);
        drop(tensor);
    })
    .unwrap();
    let failure = simulated.recording.failure.unwrap();
    assert_eq!(
        failure.refusal,
        recording::Refusal::TooLarge {
            largest: Bytes::mib(250)
        }
    );
}

#[test]
fn a_refused_step_goes_on_and_its_recording_ends() {
    let spec = unlimited().with_memory(Bytes::mib(1_000), Bytes::ZERO);
    let reached = AtomicUsize::new(0);
    let simulated = simulate(spec, FloatDType::F32, |run| {
        // 1,200 MiB; the card has 1,000.
        let tensors = [0; 6].map(|_| Tensor::<2>::zeros([200, 1 << 18], &run.device()));
        run.end(Phase::Data);
        for tensor in &tensors {
            run.input(tensor);
        }
        run.end(Phase::Forward);
        reached.fetch_add(1, Ordering::Relaxed);
    });
    let simulated = simulated.unwrap();
    assert!(reached.into_inner() > 0);
    assert!(simulated.outcome().is_err());
    let phases = simulated.recording.marks.iter().map(|mark| mark.phase);
    assert_eq!(phases.collect::<Vec<_>>(), [Phase::Data]);
}

#[test]
fn cards_in_parallel_do_not_touch_each_other() {
    let alone: Vec<_> = (1..=4)
        .map(|batch| run("resnet-18", batch, Precision::Fp32, &unlimited()))
        .map(|simulated| (simulated.reserved, simulated.recording))
        .collect();
    let together: Vec<_> = thread::scope(|scope| {
        let runs: Vec<_> = (1..=4)
            .map(|batch| {
                scope.spawn(move || run("resnet-18", batch, Precision::Fp32, &unlimited()))
            })
            .collect();
        let done = runs.into_iter().map(|run| run.join().unwrap());
        done.map(|simulated| (simulated.reserved, simulated.recording))
            .collect()
    });
    for ((reserved, calls), (reserved_alone, calls_alone)) in together.iter().zip(&alone) {
        assert_eq!(reserved, reserved_alone);
        let [events, events_alone] =
            [calls, calls_alone].map(|calls| without_streams(&calls.events));
        assert_eq!(events, events_alone);
        assert_eq!(calls.launches, calls_alone.launches);
        assert_eq!(calls.metadata, calls_alone.metadata);
        assert_eq!(calls.reads_back, calls_alone.reads_back);
    }
}

/// Events without their streams: which stream a thread gets depends on which thread comes first.
fn without_streams(events: &[recording::Event]) -> Vec<&recording::Event> {
    let is_stream = |event: &&recording::Event| matches!(event, recording::Event::Stream(_));
    events.iter().filter(|event| !is_stream(event)).collect()
}

/// `two_runs_are_the_same_to_the_byte_cold_and_warm` (`tuning.rs`) shows it of a build that tunes.
#[test]
#[cfg(not(feature = "autotune"))]
fn two_runs_are_the_same_to_the_byte() {
    let one = run("resnet-18", 2, Precision::Fp32, &unlimited());
    let other = run("resnet-18", 2, Precision::Fp32, &unlimited());
    assert_eq!(one.recording.events.len(), other.recording.events.len());
    assert_eq!(one.recording.buffers, other.recording.buffers);
    assert_eq!(one.reserved, other.reserved);
}

/// The modules that a step reports have the published counts. The zoo tests the counts of all networks
/// (`counts_are_those_published`).
#[test]
fn a_resnet_has_its_published_counts() {
    let variant = model_zoo::find("resnet-50").unwrap();
    let request = Request {
        batch: Some(1),
        input: Input {
            image: Some([32, 32]),
            ..Input::default()
        },
        ..Request::default()
    };
    let job = request.resolve(&variant).unwrap();
    // No count depends on kernels, and the search for those to fuse takes long.
    let device = unlimited().with_tuning(Tuning::Cold).unfused();
    let parameters = simulate_step(&variant, &job, device).unwrap().parameters;
    let counts = &variant.counts;
    assert_eq!(parameters.trainable, counts.trainable);
    assert_eq!(parameters.tensors, counts.tensors);
    assert_eq!(parameters.buffers, counts.buffers);
    assert_eq!(parameters.bytes.0, counts.trainable * 4);
}

/// A program need not report the end of its last phase. What it does after the one before counts, and a later run on
/// the same card knows nothing of it.
#[test]
fn what_no_phase_ends_counts_too() {
    let card = unlimited().with_memory(Bytes::gib(1), Bytes::ZERO);
    let verdict = |elements: usize| {
        fits(&card, FloatDType::F32, move |run| {
            let small = Tensor::<1>::zeros([1 << 10], &run.device());
            run.end(Phase::Init);
            let small = small.add_scalar(1.0);
            let large = Tensor::<1>::zeros([elements], &run.device());
            // burn's fusion leaves out what is dropped before anything could read it.
            std::mem::forget((small, large));
        })
    };
    assert!(verdict(1 << 20).unwrap().fits());
    assert!(!verdict(1 << 29).unwrap().fits());
}

/// Every value that is read from a card is zero.
#[test]
fn reads_give_zeros() {
    let card = SimulatedCard::new(unlimited()).unwrap();
    let device: Device = card.device();
    let sum = card
        .run(move || {
            let tensor = Tensor::<1>::ones([1000], &device);
            tensor
                .sum()
                .into_data()
                .convert_dtype(DType::F32)
                .iter::<f32>()
                .sum::<f32>()
        })
        .unwrap();
    assert_eq!(sum, 0.0);
}

/// A step of DCGAN has a backward pass through the discriminator alone and one through both networks: each of
/// its 17 layers has gradients at the end of one of them.
#[test]
fn a_layer_has_what_it_has_in_the_phase_in_which_its_network_is_trained() {
    let spec = unlimited();
    let estimate = run("dcgan", 2, Precision::Fp32, &spec).estimate().unwrap();
    assert_eq!(estimate.layers.len(), 17);
    for layer in &estimate.layers {
        assert!(layer.gradient_bytes > Bytes::ZERO, "{layer:?}");
    }
}

/// The normalisation reads the output of the first convolution of ResNet-18, so the step keeps it: 2 x 64 x
/// 112 x 112 values of 4 bytes. burn builds the normalisation from elementwise kernels, which keep their own
/// maps of that size.
#[test]
#[cfg(not(feature = "fusion"))]
fn activations_belong_to_the_layers_that_make_them() {
    let spec = unlimited();
    let simulated = run("resnet-18", 2, Precision::Fp32, &spec);
    let estimate = simulated.estimate().unwrap();
    let layer = |path: &str| {
        let mut layers = estimate.layers.iter();
        layers
            .find(|layer| layer.path == path)
            .expect("a layer of the network")
    };
    let map = 2 * 64 * 112 * 112 * 4;
    assert_eq!(layer("conv1").kind, "Conv2d");
    // The launches that compute the mean and the variance read that output and no parameter, so these two
    // vectors of 64 values, 512 bytes each in CUDA's layout, count as the convolution's too.
    let statistics = layer("conv1").activation_bytes.0 - map;
    assert_eq!(statistics, 2 * 512);
    assert_eq!(layer("bn1").kind, "BatchNorm");
    assert!(layer("bn1").activation_bytes.0 >= map);
    let first: Vec<_> = estimate
        .layers
        .iter()
        .take(2)
        .map(|layer| &layer.path)
        .collect();
    assert_eq!(first, ["conv1", "bn1"]);
}
