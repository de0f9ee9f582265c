#!/usr/bin/env bash
# Claim: burn's softmax keeps three maps of the input's size where PyTorch's keeps its output alone: autodiff sees the
#   elementary operations that softmax consists of. Batch normalization is one operation to autodiff, and keeps
#   no map of its own. So it is softmax and layer normalization, not batch normalization, that cost memory in burn.
# Package: burn 0.22.1, on its CPU backend, with an allocator that counts (output included, input not).
# Most would guess: softmax is the textbook case of a gradient from the output alone, and batch normalization is the large one.
# Seen: in maps of the input's size: softmax 3.0, log_softmax 2.0, layer normalization 3.0, batch normalization 1.0.
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
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use burn::nn::{BatchNormConfig, LayerNormConfig};
use burn::tensor::{Device, Tensor, activation};

/// The system's allocator, with a count of the bytes that are alive.
struct Counting;

static ALIVE: AtomicUsize = AtomicUsize::new(0);

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALIVE.fetch_add(layout.size(), SeqCst);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALIVE.fetch_sub(layout.size(), SeqCst);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that are alive after `forward` and were not before: the output and what the backward pass needs.
fn kept<T>(forward: impl Fn() -> T) -> f64 {
    drop(forward());
    let before = ALIVE.load(SeqCst);
    let output = forward();
    let after = ALIVE.load(SeqCst);
    drop(output);
    (after - before) as f64
}

fn main() {
    let device = Device::flex().autodiff();
    let input = Tensor::<2>::ones([1024, 256], &device).require_grad();
    let map = (1024 * 256 * size_of::<f32>()) as f64;
    let layer_norm = LayerNormConfig::new(256).init(&device);
    let batch_norm = BatchNormConfig::new(256).init(&device);
    let report = |name: &str, bytes: f64| println!("{name}: {:.1} maps kept", bytes / map);
    report("softmax", kept(|| activation::softmax(input.clone(), 1)));
    report("log_softmax", kept(|| activation::log_softmax(input.clone(), 1)));
    report("layer normalization", kept(|| layer_norm.forward(input.clone())));
    let images = input.clone().reshape([4, 256, 16, 16]);
    report("batch normalization", kept(|| batch_norm.forward::<4>(images.clone())));
}
RUST
cargo run --quiet --manifest-path "$work/Cargo.toml" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
softmax: 3.0 maps kept
log_softmax: 2.0 maps kept
layer normalization: 3.0 maps kept
batch normalization: 1.0 maps kept
SEEN
