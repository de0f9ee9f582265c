//! Compares the largest batch with runs of the step at it and beyond it.

use std::collections::BTreeSet;
use std::sync::Mutex;

use burn::tensor::{FloatDType, Tensor};
#[cfg(not(feature = "autotune"))]
use estimator::Scaling;
use estimator::{
    BatchObserver, Bytes, CellResult, DeviceSpec, Error, InPlace, Limit, Phase, Program, Proposer,
    QueueLag, Run, Runtime, StepRuns, TrainingJob, Tuning, largest_batch, largest_fits, replay,
};
use fit_check::training_job;
use model_zoo::{Input, Job, OptimizerKind, Precision, Request, Variant};
use proptest::prelude::*;

fn variant_and_job(name: &str, precision: Precision, side: usize) -> (Variant, Job) {
    let variant = model_zoo::find(name).unwrap();
    let request = Request {
        precision,
        optimizer: Some(OptimizerKind::Momentum),
        input: Input {
            image: Some([side, side]),
            ..Input::default()
        },
        ..Request::default()
    };
    let job = request.resolve(&variant).unwrap();
    (variant, job)
}

/// Whether a run completes, and goes on with its last step as a training does (`long_training.rs`).
fn fits(step: &TrainingJob, batch: u64, device: &DeviceSpec) -> bool {
    let simulated = step.simulate(batch, device.clone()).unwrap();
    let recording = &simulated.recording;
    let goes_on = || replay(device, recording, |buffer| recording.buffer(buffer).bytes);
    recording.failure.is_none() && goes_on().completed()
}

/// Fewer cases if each of them tunes its kernels first.
const CASES: u32 = if cfg!(feature = "autotune") { 4 } else { 12 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn it_fits_and_one_more_does_not(
        name in prop::sample::select(vec!["resnet-18", "resnet-20", "resnet-50"]),
        half in any::<bool>(),
        runtime in prop::sample::select(vec![Runtime::Cuda, Runtime::Wgpu]),
        side in 32usize..96,
        memory in 600u64..3_000,
        proposed in any::<bool>(),
    ) {
        let precision = if half { Precision::Fp16 } else { Precision::Fp32 };
        let (variant, job) = variant_and_job(name, precision, side);
        let step = training_job(&variant, &job);
        let spec = DeviceSpec::unlimited(runtime).with_memory(Bytes::mib(memory), Bytes::mib(100));
        let proposer = match proposed {
            true => Proposer::learn(&step, &spec).unwrap(),
            false => Proposer::without_knowledge(),
        };
        let found = largest_batch(&step, &proposer, &spec).unwrap();
        prop_assert_eq!(found.next.batch, found.batch + 1);
        let lags = [QueueLag::None].into_iter().chain(QueueLag::REQUIRED);
        let mut devices: Vec<_> = lags.map(|lag| spec.clone().with_queue_lag(lag)).collect();
        devices.push(spec.clone().with_in_place(InPlace::Never));
        devices.push(spec.clone().with_tuning(Tuning::Cold));
        let fits_all = |batch| devices.iter().all(|device| fits(&step, batch, device));
        prop_assert!(found.batch == 0 || fits_all(found.batch));
        prop_assert!(!fits_all(found.batch + 1));
        // Another way to ask the same.
        let verdict = |batch| StepRuns::of(&step, batch, &spec).unwrap().verdict(&spec).unwrap();
        let next = verdict(found.batch + 1);
        prop_assert!(!next.fits() && next.headroom_bytes < 0);
        if let Some(at_max) = &found.at_max {
            let verdict = verdict(found.batch);
            prop_assert!(verdict.fits() && verdict.headroom_bytes >= 0);
            prop_assert!(Some(at_max.peak.required_bytes) <= spec.available());
        }
    }
}

/// Where burn overwrites nothing, 234 samples are refused with 14 % more than a tuned run needs, as a run on the card itself shows.
#[test]
#[cfg(not(feature = "fusion"))]
fn a_run_that_overwrites_nothing_can_need_much_more() {
    let (variant, job) = variant_and_job("resnet-18", Precision::Fp32, 53);
    let step = training_job(&variant, &job);
    let device = DeviceSpec::unlimited(Runtime::Cuda);
    let device = device.with_memory(Bytes::mib(719), Bytes::ZERO);
    assert!(fits(&step, 234, &device));
    assert!(!fits(
        &step,
        234,
        &device.clone().with_in_place(InPlace::Never)
    ));
    let runs = StepRuns::of(&step, 234, &device).unwrap();
    let verdict = runs.verdict(&device).unwrap();
    assert!(!verdict.fits() && verdict.headroom_bytes < 0);
}

/// What the first batch that does not fit needs is read off the run that the card refused: as a run on a card with unlimited
/// memory tells.
#[test]
fn a_refused_run_tells_what_it_would_have_needed() {
    let (variant, job) = variant_and_job("resnet-18", Precision::Fp32, 224);
    for runtime in [Runtime::Cuda, Runtime::Wgpu] {
        let device = DeviceSpec::unlimited(runtime);
        let device = device.with_memory(Bytes::gib(6), Bytes::ZERO);
        let step = training_job(&variant, &job).without_first_runs();
        let proposer = Proposer::learn(&step, &device).unwrap();
        let found = largest_batch(&step, &proposer, &device).unwrap();
        let other = training_job(&variant, &job).without_first_runs();
        let unlimited = other.simulate_unlimited(found.next.batch, &device).unwrap();
        let unlimited = unlimited.estimate().unwrap();
        let mut next = found.next.estimate;
        // That of one run need not be more than the device has, where another does not complete.
        assert!(next.peak.required_bytes >= unlimited.peak.required_bytes);
        next.peak.required_bytes = unlimited.peak.required_bytes;
        assert_eq!(next, unlimited);
    }
}

/// A step cannot be run without samples, so none is.
#[test]
fn not_even_one_sample() {
    let step = TrainingJob::new(FloatDType::F32, |samples, run: &mut Run| {
        assert!(samples > 0);
        let weights = Tensor::<1>::zeros([200 << 18], &run.device());
        run.end(Phase::Forward);
        drop(weights);
    });
    let spec = DeviceSpec::unlimited(Runtime::Cuda).with_memory(Bytes::mib(100), Bytes::ZERO);
    let learned = Proposer::learn(&step, &spec).unwrap();
    for proposer in [learned, Proposer::without_knowledge()] {
        let found = largest_batch(&step, &proposer, &spec).unwrap();
        assert_eq!(found.batch, 0);
        assert_eq!(found.at_max, None);
        assert_eq!(found.next.batch, 1);
    }
}

/// The first feature map of ResNet-50 at 1024x1024 has 64 x 512 x 512 values, 64 MiB per sample. With a
/// largest binding of 512 MiB, eight samples are the most, whatever the memory.
#[test]
fn a_single_allocation_can_be_the_limit() {
    let (variant, job) = variant_and_job("resnet-50", Precision::Fp32, 1024);
    let step = training_job(&variant, &job);
    let unlimited = DeviceSpec::unlimited(Runtime::Wgpu);
    let mut spec = unlimited.with_memory(Bytes::gib(1_000), Bytes::ZERO);
    spec.card.largest_binding = Bytes::mib(512);
    let proposer = Proposer::learn(&step, &spec).unwrap();
    let found = largest_batch(&step, &proposer, &spec).unwrap();
    assert_eq!(found.limit, Limit::SingleAllocation);
    assert_eq!(found.batch, 8);
}

/// burn may have no kernel for a batch that is too large for the card anyway, as for VGG-16 in mixed precision on a V100. The
/// search goes on with fewer samples, unless burn has no kernel for one sample either.
#[test]
fn a_batch_without_kernels_is_too_large() {
    let step = |most_with_kernels: u64| {
        TrainingJob::new(FloatDType::F32, move |samples, run: &mut Run| {
            let batch = Tensor::<2>::zeros([samples as usize, 10 << 18], &run.device());
            assert!(
                samples <= most_with_kernels,
                "Unable to launch because a required feature is unavailable: a kernel for so many samples."
            );
            run.end(Phase::Forward);
            drop(batch);
        })
    };
    // A sample has 10 MiB, and a single buffer a quarter of the memory.
    let device = DeviceSpec::unlimited(Runtime::Cuda).with_memory(Bytes::mib(1_000), Bytes::ZERO);
    let largest = |most_with_kernels, learns: bool| {
        let step = step(most_with_kernels);
        let proposer = match learns {
            true => Proposer::learn(&step, &device)?,
            false => Proposer::without_knowledge(),
        };
        largest_batch(&step, &proposer, &device)
    };
    let expected = largest(u64::MAX, true).unwrap();
    assert_eq!(expected.batch, 25);
    for most_with_kernels in [26, 60] {
        for learns in [true, false] {
            let found = largest(most_with_kernels, learns).unwrap();
            assert_eq!(found.batch, expected.batch, "{most_with_kernels} {learns}");
        }
    }
    for most_with_kernels in [0, 1, 10] {
        let found = largest(most_with_kernels, false).unwrap_err();
        assert!(
            matches!(found, Error::NoKernel(_)),
            "{most_with_kernels}: {found}"
        );
    }
}

/// A network that compares groups of samples accepts few batches. The next batch that is named is one of them.
#[test]
fn the_next_batch_is_one_that_the_step_accepts() {
    let step = || {
        let step = TrainingJob::new(FloatDType::F32, |samples, run: &mut Run| {
            let batch = Tensor::<2>::zeros([samples as usize, 10 << 18], &run.device());
            run.end(Phase::Forward);
            drop(batch);
        });
        step.accepting(|samples| samples <= 4 || samples.is_multiple_of(4))
    };
    let unlimited = DeviceSpec::unlimited(Runtime::Cuda);
    let device = |mib| unlimited.clone().with_memory(Bytes::mib(mib), Bytes::ZERO);
    for mib in 50..80 {
        let devices = [device(1_000), device(mib)];
        let jobs = std::iter::once(()).map(|()| step());
        let rows = largest_fits(jobs, &devices, &NoObserver);
        for found in &rows[0] {
            let found = found.fit.as_ref().unwrap();
            assert!(step().accepts(found.next), "{} on {mib} MiB", found.next);
        }
    }
}

/// Observes nothing.
struct NoObserver;

impl BatchObserver for NoObserver {
    fn begins(&self, _job: usize, _device: usize) {}
    fn found(&self, _job: usize, _device: usize, _found: &CellResult) {}
}

/// Computes `x + 1` of a tensor beside three others, while the device's thread may be allocating `x`: the calls for 16
/// small tensors end the batch of calls with that allocation. Where burn does not overwrite `x`, a fifth tensor has to fit.
/// Without the small tensors burn always overwrites `x`.
#[test]
#[cfg(not(feature = "fusion"))] // Fusion would make one kernel of both operations.
fn the_largest_batch_has_room_without_overwriting() {
    for (small, tensors) in [(16, 5), (0, 4)] {
        let step = TrainingJob::new(FloatDType::F32, |samples, run: &mut Run| {
            let device = run.device();
            let zeros = || Tensor::<2>::zeros([samples as usize, 1 << 18], &device);
            let _others = [(); 3].map(|()| zeros());
            let x = zeros();
            let _small: Vec<_> = (0..small)
                .map(|_| Tensor::<1>::zeros([1], &device))
                .collect();
            let y = x + 1;
            run.input(&y);
            run.end(Phase::Forward);
        });
        let device = DeviceSpec::unlimited(Runtime::Cuda);
        let device = device.with_memory(Bytes::gib(1), Bytes::ZERO);
        let proposer = Proposer::learn(&step, &device).unwrap();
        let found = largest_batch(&step, &proposer, &device).unwrap();
        // A sample has 1 MiB of each tensor.
        let most = 1024 / tensors;
        assert!(
            found.batch > most - 20 && found.batch <= most,
            "{}",
            found.batch
        );
        assert_eq!(
            found.next.refused.run.in_place == InPlace::Never,
            tensors == 5
        );
    }
}

/// A sample takes 512 KiB of 4 GiB, in eight tensors. An odd number of samples has one tensor more, so no two
/// neighbors make the same calls.
#[test]
fn a_step_that_neighbors_do_not_predict_is_run_with_few_batches() {
    let tried = Mutex::new(BTreeSet::new());
    let step = TrainingJob::new(FloatDType::F32, |samples, run: &mut Run| {
        tried.lock().unwrap().insert(samples);
        let device = run.device();
        let tensor = |_| Tensor::<2>::zeros([samples as usize, 1 << 14], &device);
        let kept: Vec<_> = (0..8).map(tensor).collect();
        let odd = (samples % 2 == 1).then(|| Tensor::<1>::zeros([1 << 14], &device));
        run.end(Phase::Forward);
        drop((kept, odd));
    });
    let device = DeviceSpec::unlimited(Runtime::Cuda).with_memory(Bytes::gib(4), Bytes::ZERO);
    let proposer = Proposer::learn(&step, &device).unwrap();
    let found = largest_batch(&step, &proposer, &device).unwrap();
    assert!(found.batch > 7_500 && found.batch <= 8_192);
    // Doubling from one sample takes 13 batches, and halving the rest as many.
    let tried = tried.lock().unwrap();
    assert!(tried.len() <= 10, "{tried:?}");
}

/// Predicts the buffers of a step with many samples from runs with 2 and with 3, and compares them with a
/// run. The weight gradient of ConvS2S works in as many groups as there are samples, up to 32.
#[test]
#[cfg(not(feature = "autotune"))]
fn two_small_batches_predict_a_larger_one_to_the_byte() {
    for runtime in [Runtime::Cuda, Runtime::Wgpu] {
        for (name, batch, predicted) in [
            ("resnet-20", 777, true),
            ("resnet-50", 61, true),
            ("bert-base", 45, true),
            ("unet", 7, true),
            ("convs2s-en-de", 31, true),
            ("convs2s-en-de", 100, false),
        ] {
            let variant = model_zoo::find(name).unwrap();
            let job = Request::default().resolve(&variant).unwrap();
            let step = training_job(&variant, &job);
            let spec = DeviceSpec::unlimited(runtime);
            let recording = |batch| step.simulate(batch, spec.clone()).unwrap().recording;
            let scaling = Scaling::between((2, recording(2)), (3, &recording(3)), &spec).unwrap();
            let run = step.simulate(batch, spec.clone()).unwrap();
            assert_eq!(
                scaling.matches(batch, &run.recording),
                predicted,
                "{name} with {batch} samples on {runtime:?}"
            );
        }
    }
}
