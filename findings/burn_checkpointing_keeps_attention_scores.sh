#!/usr/bin/env bash
# Claim: burn's gradient checkpointing keeps the attention scores. It chooses by the kind of operation: it recomputes
#   element-wise ones and keeps the outputs of matrix products, wherever they stand in a block. So what is kept still grows
#   with the square of the sequence: two of three score matrices stay.
# Package: burn 0.22.1, on its CPU backend, with an allocator that counts.
# Most would guess: as with PyTorch's checkpoint, the inputs of blocks are kept and the scores go first.
# Seen: one head of 512 tokens, in sizes of the score matrix: 3.5 kept plainly, 2.5 with checkpointing; a chain of
#   six element-wise operations shrinks from six maps to one.
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

use burn::nn::LinearConfig;
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
    const TOKENS: usize = 512;
    const WIDTH: usize = 64;
    let map = (TOKENS * TOKENS * size_of::<f32>()) as f64;
    let plain = Device::flex().autodiff();
    let checkpointed = Device::flex().autodiff().gradient_checkpointing();
    for (name, device) in [("plain", plain), ("checkpointed", checkpointed)] {
        let [query, key, value] = [(); 3].map(|()| LinearConfig::new(WIDTH, WIDTH).with_bias(false).init(&device));
        let rows = Tensor::<2>::ones([TOKENS, WIDTH], &device).require_grad();
        let attention = kept(|| {
            let scores = query.forward(rows.clone()).matmul(key.forward(rows.clone()).transpose());
            activation::softmax(scores.mul_scalar(0.125), 1).matmul(value.forward(rows.clone()))
        });
        println!("{name}: attention keeps {:.1} score matrices", attention / map);
        let scores = Tensor::<2>::ones([TOKENS, TOKENS], &device).require_grad();
        let chain = kept(|| scores.clone().exp().log().sin().cos().tanh().exp());
        println!("{name}: six element-wise operations keep {:.1} maps", chain / map);
    }
}
RUST
cargo run --quiet --manifest-path "$work/Cargo.toml" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
plain: attention keeps 3.5 score matrices
plain: six element-wise operations keep 6.0 maps
checkpointed: attention keeps 2.5 score matrices
checkpointed: six element-wise operations keep 1.0 maps
SEEN
