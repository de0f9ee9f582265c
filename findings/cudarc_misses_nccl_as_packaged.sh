#!/usr/bin/env bash
# Claim: cudarc, through which CubeCL and burn reach NCCL, looks for libnccl.so and names with CUDA's version, but not for
#   libnccl.so.2, the only name in NVIDIA's packages of the run-time library. So with NCCL installed and on the
#   library path it reports none: CubeCL 0.11.3 takes this answer for "no communication between GPUs".
# Packages: cudarc 0.19.10 (the version that cubecl-cuda 0.11.3 resolves to), nvidia-nccl-cu13 2.30.7 from PyPI.
# Most would guess: NCCL is found if the loader can find NVIDIA's file, as PyTorch finds it.
# Seen: absent with the package as it is; present once libnccl.so is a link to the same file.
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
cudarc = { version = "=0.19.10", default-features = false, features = ["std", "nccl", "driver", "runtime", "dynamic-loading", "cuda-13020"] }

[profile.dev]
debug = 0
TOML
cat > "$work/src/main.rs" <<'RUST'
fn main() {
    // Sound: it opens the library and closes it again.
    let present = unsafe { cudarc::nccl::sys::is_culib_present() };
    println!("{}", if present { "present" } else { "absent" });
}
RUST
cargo build --quiet --manifest-path "$work/Cargo.toml"
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-deps nvidia-nccl-cu13==2.30.7
folder=$(echo "$work"/env/lib/python3*/site-packages/nvidia/nccl/lib)

look() {
  echo "$1: $(LD_LIBRARY_PATH=$folder "$CARGO_TARGET_DIR/debug/finding")"
}
{
  (cd "$folder" && ls libnccl.so*)
  look "as packaged"
  ln -s libnccl.so.2 "$folder/libnccl.so"
  look "with a link libnccl.so"
} | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
libnccl.so.2
as packaged: absent
with a link libnccl.so: present
SEEN
