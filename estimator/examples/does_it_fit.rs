//! Does a training step fit on a GPU? The step is plain burn code, which also says where its phases end.
//!
//! ```console
//! $ cargo run --example does_it_fit
//! ```
//!
//! Panics in `cubecl-core` that stderr shows are those of a probe, which CubeCL catches.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, FloatDType, Tensor};
use estimator::{Error, Gpu, Phase, Run, Runtime, fits};

/// Two layers with `width` hidden units.
#[derive(Module, Debug)]
struct Network {
    first: Linear,
    relu: Relu,
    second: Linear,
}

impl Network {
    fn new(width: usize, device: &Device) -> Self {
        Self {
            first: LinearConfig::new(1024, width).init(device),
            relu: Relu::new(),
            second: LinearConfig::new(width, 1).init(device),
        }
    }

    /// `[batch, 1024]` to `[batch, 1]`.
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.second
            .forward(self.relu.forward(self.first.forward(x)))
    }
}

fn step(width: usize, run: &mut Run) {
    let device = run.device();
    let network = Network::new(width, &device);
    let samples = Tensor::<2>::zeros([256, 1024], &device);
    let loss = network.forward(samples).mean();
    run.end(Phase::Forward);
    let gradients = GradientsParams::from_grads(loss.backward(), &network);
    run.end(Phase::Backward);
    drop(AdamConfig::new().init().step(1e-3, network, gradients));
    run.end(Phase::Optimizer);
}

fn main() -> Result<(), Error> {
    let card = Gpu::find("rtx-3060").expect("a card of the catalogue");
    for width in [100_000, 1_000_000] {
        let verdict = fits(&card.spec(Runtime::Cuda), FloatDType::F32, |run| {
            step(width, run);
        })?;
        let answer = if verdict.fits() {
            "fits"
        } else {
            "does not fit"
        };
        println!("{width} hidden units: {answer} on {}", card.name);
    }
    Ok(())
}
