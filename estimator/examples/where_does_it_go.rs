//! Where does the memory of a step go? Categories at the peak, and the largest batch for a card.
//!
//! ```console
//! $ cargo run --example where_does_it_go
//! ```
//!
//! Panics in `cubecl-core` that stderr shows are those of a probe, which CubeCL catches.

use burn::nn::transformer::{TransformerEncoderConfig, TransformerEncoderInput};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{FloatDType, Tensor};
use estimator::{Category, Error, Gpu, Phase, Run, Runtime, estimate, max_batch};

/// Trains an encoder of six layers on `samples` sequences of 128 vectors: two steps, since a step after the first
/// also has the optimizer's state. A module is reported when its parameters exist, which is after their first use.
fn train(samples: usize, run: &mut Run) {
    let device = run.device();
    let mut encoder = TransformerEncoderConfig::new(512, 2048, 8, 6).init(&device);
    let mut optimizer = AdamWConfig::new().init();
    for _ in 0..2 {
        let sequences = Tensor::<3>::zeros([samples, 128, 512], &device);
        run.input(&sequences);
        run.end(Phase::Data);

        let input = TransformerEncoderInput::new(sequences);
        let loss = encoder.forward(input).mean();
        run.module("encoder", &encoder);
        run.end(Phase::Forward);

        let gradients = GradientsParams::from_grads(loss.backward(), &encoder);
        run.gradients(&encoder, &gradients);
        run.end(Phase::Backward);

        encoder = optimizer.step(1e-4, encoder, gradients);
        run.module("encoder", &encoder);
        run.end(Phase::Optimizer);
    }
}

fn main() -> Result<(), Error> {
    let card = Gpu::find("24GB").expect("a card of the catalogue");
    let device = card.spec(Runtime::Cuda);

    let estimate = estimate(&device, FloatDType::F32, |run| train(16, run))?;
    println!(
        "16 samples: {} in use at the peak",
        estimate.peak.live_bytes
    );
    for category in [
        Category::Parameters,
        Category::Gradients,
        Category::Optimizer,
        Category::Activations,
        Category::Temporaries,
    ] {
        println!("  {category}: {}", estimate.at_peak[category]);
    }

    let largest = max_batch(&device, FloatDType::F32, |samples, run| {
        train(samples as usize, run);
    })?;
    println!("{}: at most {} samples", card.name, largest.batch);
    Ok(())
}
