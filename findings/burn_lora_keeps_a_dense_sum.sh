#!/usr/bin/env bash
# Claim: in burn each layer with a LoRA adapter keeps a dense matrix of the size of its weight for the backward pass. burn adds
#   the product of the factors to the weight and multiplies by the sum; PEFT sends the input through the factors and
#   adds outputs. So LoRA takes more memory in the forward pass than training all weights does, and the rank does not matter.
# Package: burn 0.22.1, on its CPU backend, with an allocator that counts.
# Most would guess: the adapter adds what its rank needs, as the paper's figure and PEFT do.
# Seen: 4 rows through a 512x512 layer, in sizes of the weight: 0.0 trained in full, 1.0 with an adapter of rank 4.
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

use burn::module::{Lora, Module};
use burn::nn::LinearConfig;
use burn::tensor::{Device, Tensor};

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
    const WIDTH: usize = 512;
    let weight = (WIDTH * WIDTH * size_of::<f32>()) as f64;
    let device = Device::flex().autodiff();
    let rows = Tensor::<2>::ones([4, WIDTH], &device).require_grad();
    let layer = LinearConfig::new(WIDTH, WIDTH).with_bias(false).init(&device);
    let full = kept(|| layer.forward(rows.clone()));
    println!("all weights trained: {:.1} weights kept", full / weight);
    for rank in [1, 4, 16] {
        let adapted = layer.clone().apply_lora(Lora::new(rank, 8.0));
        let lora = kept(|| adapted.forward(rows.clone()));
        println!("LoRA of rank {rank}: {:.1} weights kept", lora / weight);
    }
}
RUST
cargo run --quiet --manifest-path "$work/Cargo.toml" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
all weights trained: 0.0 weights kept
LoRA of rank 1: 1.0 weights kept
LoRA of rank 4: 1.0 weights kept
LoRA of rank 16: 1.0 weights kept
SEEN
