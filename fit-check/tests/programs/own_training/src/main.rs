//! Trains a small network, like any program that does not know of simulated cards.

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Distribution, Int, Tensor};

const WIDTH: usize = 1024;
const CLASSES: usize = 16;
const BATCH: usize = 256;

#[derive(Module, Debug)]
struct Network {
    first: Linear,
    second: Linear,
    third: Linear,
    relu: Relu,
}

impl Network {
    fn new(device: &Device) -> Self {
        Self {
            first: LinearConfig::new(WIDTH, WIDTH).init(device),
            second: LinearConfig::new(WIDTH, WIDTH).init(device),
            third: LinearConfig::new(WIDTH, CLASSES).init(device),
            relu: Relu::new(),
        }
    }

    /// Images `[batch, width]` to scores `[batch, classes]`.
    fn forward(&self, images: Tensor<2>) -> Tensor<2> {
        let hidden = self.relu.forward(self.first.forward(images));
        let hidden = self.relu.forward(self.second.forward(hidden));
        self.third.forward(hidden)
    }
}

fn main() {
    let steps = std::env::args().nth(1);
    let steps: usize = steps.map_or(1_000_000, |text| text.parse().expect("a number of steps"));
    let device = Device::default().autodiff();
    let mut network = Network::new(&device);
    let mut adam = AdamConfig::new().init();
    let loss = CrossEntropyLossConfig::new().init(&device);
    for step in 0..steps {
        let images = Tensor::<2>::random([BATCH, WIDTH], Distribution::Default, &device);
        let classes = Tensor::<1, Int>::zeros([BATCH], &device);
        let error = loss.forward(network.forward(images), classes);
        let value: f32 = error.clone().into_scalar();
        if step % 100 == 0 {
            println!("step {step}: loss {value}");
        }
        let gradients = GradientsParams::from_grads(error.backward(), &network);
        network = adam.step(1e-3, network, gradients);
    }
}
