//! The largest batch, against running the step at it and beyond it.

use std::sync::Arc;

use estimator::{
    Bytes, CardSpec, Error, Forecast, Limit, Pace, Program, Runtime, Scaling, Simulated, Workbench,
    largest_batch,
};
use fit_check::simulate_step_on;
use model_zoo::{Input, Job, OptimizerKind, Precision, Request, Variant};
use proptest::prelude::*;

struct Step {
    variant: Variant,
    job: Job,
    bench: Workbench,
}

impl Step {
    fn new(name: &str, precision: Precision, side: usize) -> Self {
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
        let bench = Workbench::new(job.precision.float_type());
        Self {
            variant,
            job,
            bench,
        }
    }

    fn fits(&self, batch: u64, spec: &CardSpec) -> bool {
        let simulated = self.simulate(batch, spec.clone()).unwrap();
        simulated.recording.failure.is_none()
    }

    fn scaling(&self, spec: &CardSpec) -> Option<Scaling> {
        let endless = spec.without_limit();
        let few = self.simulate(2, endless.clone()).unwrap();
        let more = self.simulate(3, endless.clone()).unwrap();
        Scaling::between(2, few.recording, &more.recording, &endless)
    }

    fn forecast(&self, spec: &CardSpec) -> Option<Forecast<'_, Self>> {
        let scaling = Arc::new(self.scaling(spec)?);
        Some(Forecast::new(self, scaling, spec.without_limit()))
    }
}

impl Program for Step {
    fn simulate(&self, batch: u64, spec: CardSpec) -> Result<Simulated, Error> {
        let job = Job {
            batch: batch as usize,
            ..self.job.clone()
        };
        simulate_step_on(&self.bench, &self.variant, &job, spec)
    }
}

/// Fewer where each case tunes its kernels first.
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
        let step = Step::new(name, precision, side);
        let spec = CardSpec::endless(runtime).with_memory(Bytes::mib(memory), Bytes::mib(100));
        let forecast = if proposed { step.forecast(&spec) } else { None };
        let found = largest_batch(&step, forecast.as_ref(), &spec).unwrap();
        prop_assert_eq!(found.next.batch, found.batch + 1);
        let fits = |batch| [Pace::InStep, Pace::Behind].into_iter().all(|pace| {
            step.fits(batch, &CardSpec { pace, ..spec.clone() })
        });
        prop_assert!(found.batch == 0 || fits(found.batch));
        prop_assert!(!fits(found.batch + 1));
    }
}

#[test]
fn not_even_one_sample() {
    let step = Step::new("resnet-50", Precision::Fp32, 224);
    let spec = CardSpec::endless(Runtime::Cuda).with_memory(Bytes::mib(100), Bytes::ZERO);
    let found = largest_batch(&step, None, &spec).unwrap();
    assert_eq!(found.batch, 0);
    assert_eq!(found.at_max, None);
    assert_eq!(found.next.batch, 1);
}

/// The first map of ResNet-50 at 1024x1024 has 64 x 512 x 512 values, 64 MiB a sample: with a
/// largest binding of 512 MiB, eight samples are the most, whatever the memory.
#[test]
fn a_single_allocation_can_be_the_limit() {
    let step = Step::new("resnet-50", Precision::Fp32, 1024);
    let spec = CardSpec {
        largest_binding: Bytes::mib(512),
        ..CardSpec::endless(Runtime::Wgpu).with_memory(Bytes::gib(1_000), Bytes::ZERO)
    };
    let forecast = step.forecast(&spec);
    let found = largest_batch(&step, forecast.as_ref(), &spec).unwrap();
    assert_eq!(found.limit, Limit::SingleAllocation);
    assert_eq!(found.batch, 8);
}

/// Which buffers a step has with many samples, from runs with 2 and with 3; against a run. The
/// weight gradient of ConvS2S works in as many groups as there are samples, up to 32.
#[test]
#[cfg(not(feature = "autotune"))]
fn two_small_batches_foretell_a_larger_one_to_the_byte() {
    for runtime in [Runtime::Cuda, Runtime::Wgpu] {
        for (name, batch, foretold) in [
            ("resnet-20", 777, true),
            ("resnet-50", 61, true),
            ("bert-base", 45, true),
            ("unet", 7, true),
            ("convs2s-en-de", 31, true),
            ("convs2s-en-de", 100, false),
        ] {
            let variant = model_zoo::find(name).unwrap();
            let step = Step {
                job: Request::default().resolve(&variant).unwrap(),
                variant,
                bench: Workbench::new(Precision::Fp32.float_type()),
            };
            let spec = CardSpec::endless(runtime);
            let scaling = step.scaling(&spec).unwrap();
            let run = step.simulate(batch, spec).unwrap();
            assert_eq!(
                scaling.foretells(batch, &run.recording),
                foretold,
                "{name} with {batch} samples on {runtime:?}"
            );
        }
    }
}
