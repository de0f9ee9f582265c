#!/usr/bin/env bash
# Claim: how much CubeCL's memory pools reserve for the same tensors depends on a buffer that is long gone. Pages are as large as
#   the largest allocation so far, and a tensor just above half a page wastes the rest of it. A first buffer of 10 MiB,
#   freed at once, makes sixteen tensors of 6 MiB reserve 176 MiB in place of 112; one of 11 MiB makes it 96.
# Package: cubecl-server 0.11.3 (the pools of burn 0.22.1 on CUDA, ROCm and wgpu), with its storage in host memory.
# Most would guess: a buffer that was freed before can be reused or returned, and at worst stays cached itself.
# Seen: 96 MiB in use each time; reserved 112, 144, 176, 96 and 104 MiB after no buffer, one of 8, 10, 11 and 12 MiB.
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
cubecl-environment = { version = "=0.11.3", default-features = false, features = ["std"] }
cubecl-ir = "=0.11.3"
cubecl-server = { version = "=0.11.3", default-features = false, features = ["std", "storage-bytes"] }

[profile.dev]
debug = 0
TOML
cat > "$work/src/main.rs" <<'RUST'
use cubecl_environment::sync::Arc;
use cubecl_ir::MemoryDeviceProperties;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    ErrorGraph, MemoryConfiguration, MemoryManagement, MemoryManagementOptions, PageUpdate,
};
use cubecl_server::storage::BytesStorage;

const MIB: u64 = 1024 * 1024;

/// MiB in use and reserved with sixteen tensors of 6 MiB, after a buffer of `first` MiB that was freed before.
fn sixteen_tensors_after(first: Option<u64>) -> [u64; 2] {
    let mut memory = MemoryManagement::from_configuration(
        BytesStorage::default(),
        &MemoryDeviceProperties::new(1024 * MIB, 512),
        MemoryConfiguration::Adaptive,
        Arc::new(ServerLogger::default()),
        MemoryManagementOptions::new("finding"),
    );
    let mut failures = ErrorGraph::default();
    let mut reserve = |size: u64| memory.reserve(size * MIB, PageUpdate::Allow, &mut failures).expect("there is room");
    if let Some(size) = first {
        drop(reserve(size));
    }
    let _tensors: Vec<_> = (0..16).map(|_| reserve(6)).collect();
    let usage = memory.memory_report().usage();
    [usage.bytes_in_use, usage.bytes_reserved].map(|bytes| bytes / MIB)
}

fn main() {
    for first in [None, Some(8), Some(10), Some(11), Some(12)] {
        let [in_use, reserved] = sixteen_tensors_after(first);
        let first = first.map_or("none".to_owned(), |size| format!("{size} MiB"));
        println!("freed before: {first}; in use {in_use} MiB, reserved {reserved} MiB");
    }
}
RUST
cargo run --quiet --manifest-path "$work/Cargo.toml" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
freed before: none; in use 96 MiB, reserved 112 MiB
freed before: 8 MiB; in use 96 MiB, reserved 144 MiB
freed before: 10 MiB; in use 96 MiB, reserved 176 MiB
freed before: 11 MiB; in use 96 MiB, reserved 96 MiB
freed before: 12 MiB; in use 96 MiB, reserved 104 MiB
SEEN
