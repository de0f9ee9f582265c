//! Trains the model of `own_code` for two steps on a CUDA device, as a program does that knows nothing of fit-check.
//!
//! ```console
//! $ cargo build --release --features cuda --example train_mixer
//! $ fit-check run --gpu rtx-3090 -- target/release/examples/train_mixer 64
//! ```

#[path = "own_code/model.rs"]
mod model;

use std::convert::Infallible;

use burn::tensor::{Device, Tensor};
use model_zoo::{Model, Observer, Phase, Request};

/// Shows the loss of each step.
struct Losses {
    device: Device,
}

impl Observer for Losses {
    type Stop = Infallible;

    fn loss(&mut self, loss: &Tensor<1>) {
        println!("loss {}", loss.clone().into_scalar::<f32>());
    }

    fn end(&mut self, _phase: Phase) -> Result<(), Infallible> {
        self.device.sync().expect("the device trains");
        Ok(())
    }
}

fn main() {
    let batch = std::env::args().nth(1).map(|batch| batch.parse());
    let batch = batch.map(|batch| batch.expect("the argument is a number of samples"));
    let mixer = model::Mixer::default();
    let request = Request {
        batch,
        ..Request::default()
    };
    let job = request.resolve(&mixer).expect("the batch is no zero");
    let device = Device::cuda(0).autodiff();
    let mut losses = Losses {
        device: device.clone(),
    };
    let Ok(()) = mixer.train(&job, &device, 2, &mut losses);
}
