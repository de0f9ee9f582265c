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

step() {
  printf '\n== %s (%ss)\n' "$1" "$SECONDS"
}

# `fit-check verify` on a small job.
verify() {
  "$program" verify resnet-20 --device cuda --driver counting --quiet "$@"
}

# `fit-check run` on a program that trains: its peak is that of the estimate, and a page shows it.
peak_is_estimated() {
  local program=$1
  shift
  local folder
  folder=$(mktemp -d)
  "$program" verify "$@" --device cuda --driver counting --format json --quiet >"$folder/verify.json"
  "$program" run --memory 64GiB --format json --quiet --output "$folder/run.json" --html "$folder/run.html" -- \
    "$program" verify "$@" --device cuda --quiet >/dev/null
  grep -q '<svg' "$folder/run.html"
  python3 - "$folder" <<'PYTHON'
import json, sys
folder = sys.argv[1]
verify = json.load(open(f"{folder}/verify.json"))
run = json.load(open(f"{folder}/run.json"))
estimated, ran = verify["estimated"]["peak_reserved_bytes"], run["cards"][0]["peak_bytes"]
print(f"estimated {estimated}, taken {ran}")
sys.exit(estimated != ran)
PYTHON
  rm -r "$folder"
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
  peak_is_estimated "$program" resnet-20 --batch 8

  step "random jobs are as estimated"
  "$target/release/differential" --seed 5 --cases 8
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
