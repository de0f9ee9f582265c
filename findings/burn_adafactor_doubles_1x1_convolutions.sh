#!/usr/bin/env bash
# Claim: burn's Adafactor, the optimizer that people choose for its small state, holds as much state as Adam for a 1x1
#   convolution: two full copies of the weight. It factors the last two dimensions, which are the kernel's, so for
#   [out, in, 1, 1] both the "row" and the "column" moment have the shape of the weight. In ResNet-50 half of the weights
#   of the convolutions are 1x1.
# Package: burn 0.22.1.
# Most would guess: rows and columns are the output and input channels, and the state is a fraction of the weight.
# Seen: bytes of state per byte of weight: linear 0.01, 3x3 convolution 0.67, 1x1 convolution 2.00 (Adam: 2.00).
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CARGO_TARGET_DIR=${FINDINGS_TARGET:-$work/target}
mkdir "$work/src"

cat > "$work/Cargo.toml" <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
burn = { version = "=0.22.1", default-features = false, features = ["std", "optim", "autodiff", "flex"] }
# burn takes any later 0.22 of its parts.
burn-autodiff = { version = "=0.22.1", default-features = false }
burn-core = { version = "=0.22.1", default-features = false }
burn-nn = { version = "=0.22.1", default-features = false }
burn-optim = { version = "=0.22.1", default-features = false }

[profile.dev]
debug = 0
TOML
cat > "$work/src/main.rs" <<'RUST'
use burn::module::Module;
use burn::nn::LinearConfig;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::optim::{AdafactorConfig, AdamConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor};

/// Bytes of the optimizer's record after one step, per byte of weights.
fn state<M: Module>(model: M, mut optimizer: ModuleOptimizer, loss: impl Fn(&M) -> Tensor<1>) -> f64 {
    let weights = model.num_params() * size_of::<f32>();
    let gradients = GradientsParams::from_grads(loss(&model).backward(), &model);
    optimizer.step(1e-3, model, gradients);
    let record = optimizer.into_bytes().expect("the record is written to memory");
    record.len() as f64 / weights as f64
}

fn convolution(size: usize, optimizer: ModuleOptimizer, device: &Device) -> f64 {
    let layer = Conv2dConfig::new([256, 256], [size, size]).with_bias(false).init(device);
    let image = Tensor::<4>::ones([1, 256, 4, 4], device);
    state(layer, optimizer, |layer: &Conv2d| layer.forward(image.clone()).sum())
}

fn main() {
    let device = Device::flex().autodiff();
    let layer = LinearConfig::new(256, 256).with_bias(false).init(&device);
    let rows = Tensor::<2>::ones([4, 256], &device);
    let linear = state(layer, AdafactorConfig::new().init(), |layer| layer.forward(rows.clone()).sum());
    println!("Adafactor, linear 256 x 256: {linear:.2}");
    for size in [3, 1] {
        let ratio = convolution(size, AdafactorConfig::new().init(), &device);
        println!("Adafactor, convolution {size}x{size}: {ratio:.2}");
    }
    let ratio = convolution(1, AdamConfig::new().init(), &device);
    println!("Adam, convolution 1x1: {ratio:.2}");
}
RUST
cargo run --quiet --manifest-path "$work/Cargo.toml" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
Adafactor, linear 256 x 256: 0.01
Adafactor, convolution 3x3: 0.67
Adafactor, convolution 1x1: 2.00
Adam, convolution 1x1: 2.00
SEEN
