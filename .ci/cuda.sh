#!/usr/bin/env bash
# Type-checks the runtimes that link LLVM or need another system, in a target folder of their
# own: DOCS_RS makes the LLVM crates skip their libraries, and switching it rebuilds them.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
DOCS_RS=1 CUDARC_CUDA_VERSION=13000 CARGO_TARGET_DIR="$target/cuda" \
  cargo check --workspace --features fit-check/cuda,fit-check/vulkan
