//! Holds the GPUs of a data-parallel job (`Strategy::Ddp`), which run one by one, against burn's own data parallelism on two
//! simulated cards at once.

use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::distributed::{DistributedConfig, DistributedContext, ReduceOperation};
use burn::tensor::{Device, FloatDType, Tensor};
use estimator::{Bytes, DeviceSpec, Runtime, SimulatedCard, Tuning, pools_of, simulate};
use fit_check::SimulatedObserver;
use model_zoo::{Job, OptimizerKind, Rank, Request, Strategy, supervised};
use recording::Pools;
#[cfg(all(feature = "fusion", feature = "autotune"))]
use {
    estimator::{Gpu, StepRuns},
    fit_check::{simulate_step, training_job},
    model_zoo::{BaseFormat, LoraRequest},
};

const STEPS: usize = 2;
const BATCH: usize = 64;

/// burn's threads read its configuration once, and what is fused is one for the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Convolutions, whose kernels have rows of 3 elements that CUDA lays out 4 elements apart, and linear layers.
#[derive(Module, Debug)]
struct Network {
    convolutions: Vec<Conv2d>,
    linear: Vec<Linear>,
}

impl Network {
    fn new(device: &Device) -> Self {
        let convolution = |channels| {
            let config = Conv2dConfig::new(channels, [3, 3]);
            config.with_padding(PaddingConfig2d::Same).init(device)
        };
        let linear = |_| LinearConfig::new(1024, 1024).init(device);
        Self {
            convolutions: [[3, 64], [64, 256], [256, 4]].map(convolution).into(),
            linear: (0..4).map(linear).collect(),
        }
    }

    fn images(device: &Device) -> (Tensor<4>,) {
        (Tensor::zeros([BATCH, 3, 16, 16], device),)
    }

    /// The loss `[1]` of images `[batch, 3, 16, 16]`.
    fn loss(&self, images: Tensor<4>) -> Tensor<1> {
        let convolved = self.convolutions.iter();
        let features = convolved.fold(images, |input, layer| layer.forward(input));
        let flat = features.flatten::<2>(1, 3);
        let layers = self.linear.iter();
        let output = layers.fold(flat, |input, layer| layer.forward(input));
        output.square().mean()
    }
}

/// As `ModuleSharder` of burn-train 0.22.1, `src/learner/sharder.rs`.
struct Shared;

impl ModuleMapper for Shared {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        Param::from_mapped_value(id, tensor.set_distributed(id), mapper)
    }
}

fn device(fused: bool) -> DeviceSpec {
    let device = DeviceSpec::unlimited(Runtime::Cuda).with_tuning(Tuning::Cold);
    match fused {
        true => device,
        false => device.unfused(),
    }
}

fn job(strategy: Strategy) -> Job {
    let request = Request {
        optimizer: Some(OptimizerKind::Adam),
        strategy,
        ..Request::default()
    };
    let any = model_zoo::find("resnet-18").unwrap();
    request.resolve(&any).unwrap()
}

/// What the pools hold at the end of each phase, by burn's own threads: those of `strategies/ddp/{strategy,worker,epoch}.rs` of
/// burn-train 0.22.1, line by line, on two cards.
fn by_burn(fused: bool) -> Vec<Vec<Pools>> {
    let cards = [0, 1].map(|_| SimulatedCard::new(device(fused)).unwrap());
    let devices: Vec<Device> = cards.iter().map(|card| card.device().autodiff()).collect();
    let first = Network::new(&devices[0]);
    let config = DistributedConfig {
        all_reduce_op: ReduceOperation::Mean,
    };
    let context = DistributedContext::init(devices.clone(), config);
    let barrier = Arc::new(Barrier::new(devices.len()));
    let workers = devices.into_iter().map(|device| {
        let (model, barrier) = (first.clone(), barrier.clone());
        let mut optimizer: ModuleOptimizer = burn::optim::AdamConfig::new().init();
        thread::spawn(move || {
            let mut held = Vec::new();
            let mut phase_ends = || {
                let _ = device.sync();
                held.push(pools_of(&device));
            };
            let model = model.fork(&device);
            let mut model = model.map(&mut Shared);
            let _ = device.sync();
            barrier.wait();
            phase_ends();
            for _ in 0..STEPS {
                let (images,) = Network::images(&device);
                phase_ends();
                let loss = model.loss(images);
                phase_ends();
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                phase_ends();
                drop(loss);
                model = optimizer.step(1e-3, model.clone(), gradients);
                phase_ends();
                barrier.wait();
            }
            held
        })
    });
    let workers: Vec<_> = workers.collect();
    let held = workers.into_iter().map(|worker| worker.join().unwrap());
    let held = held.collect();
    drop(first);
    drop(context);
    held
}

/// The same of one GPU, by itself.
fn by_itself(fused: bool, strategy: Strategy) -> Vec<Pools> {
    let job = job(strategy);
    let run = simulate(device(fused), FloatDType::F32, |run| {
        let device = run.device();
        let model = Network::new(&device);
        let _ = supervised(
            model,
            &job,
            &device,
            STEPS,
            &mut SimulatedObserver::new(run),
            Network::images,
            |model, (images,)| model.loss(images),
        );
    });
    let marks = run.unwrap().recording.marks;
    marks.iter().map(|mark| mark.pools).collect()
}

/// Bytes in use at the end of each phase, from the first backward phase on: before that, a layer has its parameters from
/// another GPU, or creates them at its first use.
fn in_use(held: &[Pools]) -> Vec<Bytes> {
    held[3..].iter().map(|pools| pools.in_use).collect()
}

#[test]
fn each_gpu_by_itself_holds_what_it_holds_in_burns_own_data_parallelism() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for fused in [false, true] {
        if fused && !cfg!(feature = "fusion") {
            continue;
        }
        let [first, other] = by_burn(fused).try_into().unwrap();
        let alone = by_itself(fused, Strategy::Ddp(Rank::First));
        assert_eq!(in_use(&first), in_use(&alone), "fused: {fused}");
        // A buffer that comes from another GPU is not rounded up, as one is that a layer creates.
        let alone = by_itself(fused, Strategy::Ddp(Rank::Other));
        for (real, alone) in in_use(&other).into_iter().zip(in_use(&alone)) {
            let differ = real.0.abs_diff(alone.0);
            assert!(differ < 1024, "fused: {fused}, {real} and {alone}");
        }
    }
}

/// The figures of a job in MiB: in use at most, and reserved at the end of the last step.
#[cfg(all(feature = "fusion", feature = "autotune"))]
fn figures(name: &str, batch: usize, fused: bool, strategy: Strategy) -> [f64; 2] {
    let variant = model_zoo::find(name).unwrap();
    let request = Request {
        batch: Some(batch),
        optimizer: Some(OptimizerKind::Adam),
        strategy,
        ..Request::default()
    };
    let job = request.resolve(&variant).unwrap();
    let device = device(fused).with_tuning(Tuning::Warm);
    let run = simulate_step(&variant, &job, device).unwrap();
    let reserved = run.recording.marks.last().unwrap().pools.reserved;
    [run.most_in_use(), reserved]
        .map(|bytes| (bytes.as_f64() / f64::from(1 << 20) * 10.0).round() / 10.0)
}

/// The bytes in use were seen with burn's own threads on two simulated cards, in a loop that moves the model; so was, with BERT,
/// that reserved bytes are 372 MiB more than on one card. The clone of burn-train's loop comes on top of that.
#[cfg(all(feature = "fusion", feature = "autotune"))]
#[test]
fn resnet_and_bert_take_what_they_took_on_two_cards() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let other = Strategy::Ddp(Rank::Other);
    let most = |name, batch, fused, strategy| figures(name, batch, fused, strategy)[0];
    assert_eq!(most("resnet-50", 32, true, Strategy::Single), 4098.9);
    assert_eq!(most("resnet-50", 32, true, other), 4098.9);
    assert_eq!(most("resnet-50", 32, false, Strategy::Single), 4280.5);
    assert_eq!(most("resnet-50", 32, false, other), 4309.2);
    let bert = |strategy| figures("bert-base", 8, false, strategy);
    assert_eq!(bert(Strategy::Single), [2354.0, 2518.7]);
    let [in_use, reserved] = bert(Strategy::Learner);
    assert_eq!(in_use, 2354.0);
    assert_eq!(bert(other), [2354.0, reserved + 372.0]);
    // GPU 0 keeps the model that the program built: 109,483,778 parameters.
    assert_eq!(bert(Strategy::Ddp(Rank::First)), [2771.6, reserved + 372.0]);
}

/// The estimate takes the other GPUs from the runs of GPU 0: as if they had been run.
#[cfg(all(feature = "fusion", feature = "autotune"))]
#[test]
fn the_other_gpus_are_gpu_0_without_the_model_that_it_keeps() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let card = Gpu::find("rtx-3090").unwrap().spec(Runtime::Cuda);
    for (name, lora) in [("resnet-18", None), ("bert-base", Some(8))] {
        let variant = model_zoo::find(name).unwrap();
        let estimate = |rank| {
            let lora = lora.map(|rank| LoraRequest {
                rank,
                targets: Vec::new(),
                base: BaseFormat::Dense,
            });
            let request = Request {
                batch: Some(8),
                lora,
                strategy: Strategy::Ddp(rank),
                ..Request::default()
            };
            let job = request.resolve(&variant).unwrap();
            let program = training_job(&variant, &job);
            let runs = StepRuns::of(&program, 8, &card).unwrap();
            let runs = match rank {
                Rank::First => runs.without_kept().unwrap(),
                Rank::Other => runs,
            };
            runs.estimate().unwrap().peak
        };
        let [derived, run] = [Rank::First, Rank::Other].map(estimate);
        // The runtime keeps the shapes of a launch in small buffers of its own.
        let differ = derived.live_bytes.0.abs_diff(run.live_bytes.0);
        assert!(differ < 1024, "{name}: {derived:?} and {run:?}");
        // Where the first weights lie decides a page.
        let differ = derived.required_bytes.0.abs_diff(run.required_bytes.0);
        assert!(differ <= 4 << 20, "{name}: {derived:?} and {run:?}");
    }
}
