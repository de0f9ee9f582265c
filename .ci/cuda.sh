#!/usr/bin/env bash
# Everything about CUDA that needs a build with it, on a machine without a GPU. Not part of `.ci/run`: the
# build links LLVM and takes 10 to 45 minutes on two cores. What it measures is committed as records, and
# `.ci/run` holds today's estimates against those.
#
#   XDG_DATA_HOME=/opt/tl/data .ci/cuda.sh          # where LLVM is: see docs/cuda_build.md
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
export CARGO_TERM_COLOR=never CUDARC_CUDA_VERSION=${CUDARC_CUDA_VERSION:-13000}

answers=$(mktemp -d)
trap 'rm -r "$answers"' EXIT

step() {
  printf '\n== %s (%ss)\n' "$1" "$SECONDS"
}

# `fit-check verify` on a small job.
verify() {
  "$program" verify resnet-20 --device cuda --driver counting --quiet "$@"
}

# The value in a JSON file at a path of keys and positions.
value() {
  python3 -c '
import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    value = value[int(key) if key.isdigit() else key]
print(value)' "$@"
}

# A program takes at most ESTIMATED bytes: takes ESTIMATED PROGRAM ARGUMENTS…
takes() {
  local estimated=$1 folder taken
  shift
  folder=$(mktemp -d)
  "$program" run --memory 64GiB --format json --quiet --output "$folder/run.json" --html "$folder/run.html" -- "$@" >/dev/null
  grep -q '<svg' "$folder/run.html"
  taken=$(value "$folder/run.json" cards 0 peak_bytes)
  rm -r "$folder"
  echo "estimated $estimated, taken $taken"
  [ "$estimated" = "$taken" ]
}

for features in "--no-default-features" ""; do
  step "build: burn ${features:-with its default features}"
  # The same packages and features as in `.ci/gpu_pack.sh`, so that nothing is built twice.
  # shellcheck disable=SC2086
  cargo build --release -p fit-check -p fit-check-tests $features \
    --features fit-check/cuda,fit-check/vulkan,fit-check-tests/cuda
  program="$target/release/fit-check"

  step "a step on CUDA's runtime is as estimated, and recorded"
  record=$(mktemp)
  verify --batch 8 --record "$record"
  grep -q resnet-20 "$record"
  rm "$record"

  step "so is a dry run"
  verify --batch 8 --dry-run

  step "so is a step in mixed precision"
  verify --batch 8 --precision mixed

  step "so is a step whose kernels are tuned before"
  verify --batch 8 --tuning warm

  step "the largest batch of a card trains, and one more does not"
  verify --memory 2GiB --max-batch

  step "a program's peak is that of its estimate"
  verify --batch 8 --format json >"$answers/verify.json"
  takes "$(value "$answers/verify.json" estimated peak_reserved_bytes)" \
    "$program" verify resnet-20 --batch 8 --device cuda --quiet

  step "so is that of the example program"
  "$target/release/own_code" estimate mixer --batch 64 --tuning cold --memory 64GiB --format json --quiet \
    >"$answers/estimate.json"
  takes "$(value "$answers/estimate.json" peak reserved_bytes)" "$target/release/train_mixer" 64

  step "random jobs are as estimated"
  "$target/release/differential" --seed 5 --cases 8

  step "so is a GPU of several"
  nccl=$(mktemp -d)
  cc -shared -fPIC -o "$nccl/libnccl.so" tests/src/nccl_stub.c
  LD_LIBRARY_PATH=$nccl "$target/release/differential" --seed 6 --cases 8 --ranks
  rm -r "$nccl"
done

step "the records of the day with a GPU, with the counting driver"
.ci/gpu_pack.sh
records=$(mktemp -d)
FIT_CHECK_DRIVER="--driver counting --gpu h100" FIT_CHECK_JOBS=resnet-20 .ci/gpu_records.sh "$records" 300
grep -q resnet-20 "$records/records.jsonl"
tar -tzf "$records/jobs.tar.gz" | grep decisions.jsonl
rm -r "$records"

step "the compiler without kernels can be made"
version=$(grep -A1 '^name = "cubecl-llvm"$' Cargo.lock | sed -n 's/^version = "\(.*\)"$/\1/p')
for source in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"cubecl-llvm-$version"; do
  # Not there if the crates are vendored.
  [ ! -d "$source" ] || patch --dry-run -p1 -d "$source" <tests/no_kernels.patch
done

step "done"
