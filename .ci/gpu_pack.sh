#!/usr/bin/env bash
# For the day with a GPU: builds the program with CUDA and SPIR-V, and packs it with what it needs into the
# folder .gpu (ignored by git), which is under 48 MiB.
#
#   XDG_DATA_HOME=/opt/tl/data .ci/gpu_pack.sh      # where LLVM is: see docs/cuda_build.md
#
# Then, on the machine with the GPU, in this folder:   .ci/gpu_records.sh OUT
set -euo pipefail
cd "$(dirname "$0")/.."
export CUDARC_CUDA_VERSION=${CUDARC_CUDA_VERSION:-13000}
# The same packages and features as in `.ci/cuda.sh`, so that nothing is built twice.
cargo build --release -p fit-check -p fit-check-tests \
  --features fit-check/cuda,fit-check/vulkan,fit-check-tests/cuda
mkdir -p .gpu/nvvm/libdevice
xz -T0 -6 -c "${CARGO_TARGET_DIR:-target}/release/fit-check" >.gpu/fit-check.xz
# NVIDIA's library of mathematical functions: on a GPU the kernels compute. From its Python wheel, of CUDA 13.0 as
# the bindings are; the sum is that of the file in the wheel of PyPI.
libdevice=.gpu/nvvm/libdevice/libdevice.10.bc
sum=91334d6e12748f6cb5bbf0a1cd965a56bcd93dc4f496d2e5c5f8c6e523094356
if ! echo "$sum  $libdevice" | sha256sum --check --status 2>/dev/null; then
  wheels=$(mktemp -d)
  python3 -m pip download -q --no-deps -d "$wheels" nvidia-nvvm==13.0.88
  unzip -p "$wheels"/nvidia_nvvm*.whl '*/libdevice.10.bc' >"$libdevice"
  rm -r "$wheels"
  echo "$sum  $libdevice" | sha256sum --check --quiet
fi
bytes=$(du -sb .gpu | cut -f1)
echo "$bytes bytes in .gpu"
[ "$bytes" -lt $((48 << 20)) ]
