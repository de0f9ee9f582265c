#!/usr/bin/env bash
# Claim: loading a record into a burn module gives the module the number format of the record. A float32 module
#   that loads a half-precision checkpoint trains in float16 from then on, gradients and optimizer state included. In
#   PyTorch load_state_dict copies into the parameters, which keep their format.
# Package: burn 0.22.1.
# Most would guess: the module decides, as in PyTorch; the file is only where the values come from.
# Seen: a float32 layer of 64x64 is F16 after load_record, and Adam's record has 16,896 bytes in place of 33,280.
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
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::store::ModuleRecord;
use burn::tensor::{Device, FloatDType, Tensor};

fn layer(device: &Device) -> Linear {
    LinearConfig::new(64, 64).with_bias(false).init(device)
}

/// Bytes of Adam's record after one step.
fn adam_state(layer: Linear, device: &Device) -> usize {
    let rows = Tensor::<2>::ones([4, 64], device).cast(FloatDType::from(layer.weight.val().dtype()));
    let gradients = GradientsParams::from_grads(layer.forward(rows).sum().backward(), &layer);
    let mut adam = AdamConfig::new().init();
    adam.step(1e-3, layer, gradients);
    adam.into_bytes().expect("the record is written to memory").len()
}

fn main() {
    let device = Device::flex().autodiff();
    let mut half = layer(&device);
    half.weight = half.weight.map(|weight| weight.cast(FloatDType::F16));
    let file = half.into_record().into_bytes().expect("the record is written to memory");

    let fresh = layer(&device);
    println!("before: {:?}", fresh.weight.val().dtype());
    let loaded = fresh.load_record(ModuleRecord::from_bytes(file).expect("the record is read"));
    println!("after: {:?}", loaded.weight.val().dtype());
    println!("Adam's record: {} bytes", adam_state(loaded, &device));
    println!("of a float32 layer: {} bytes", adam_state(layer(&device), &device));
}
RUST
cargo run --quiet --manifest-path "$work/Cargo.toml" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
before: F32
after: F16
Adam's record: 16896 bytes
of a float32 layer: 33280 bytes
SEEN
