#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, with the folder .gpu that `.ci/gpu_pack.sh` has made: makes the records that
# are worth most, in that order, each written as soon as it is made, and ends within nine minutes. The status is 1
# if it made none.
#
#   .ci/gpu_records.sh OUT [SECONDS]
#
# OUT gets four files, since the machine may bring back only a few:
#   records.jsonl, largest_batches.jsonl   lines for docs/data
#   jobs.tar.gz   a folder for each job: answer.json, and decisions.jsonl, a line for each decision of burn's tuner
#                 with the times of all candidates; each process of a job that trains appends to it
#   log           what was said, and when
#
# To try it without a GPU:
#   FIT_CHECK_DRIVER="--driver counting --gpu h100" FIT_CHECK_JOBS=resnet-20 .ci/gpu_records.sh OUT 300
set -uo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 1
until_second=${2:-520}
packed=$(cd "$(dirname "$0")/.." && pwd)/.gpu
read -ra driver <<<"${FIT_CHECK_DRIVER:-}"
read -ra models <<<"${FIT_CHECK_JOBS:-resnet-50 bert-base gpt2 transformer-base pix2pixhd-512p bilstm-cnn-crf}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
program=$work/fit-check
# The driver keeps what it compiles for the next process of a job.
export CUDA_PATH=$packed CUDA_CACHE_PATH=$work/cuda CUDA_CACHE_MAXSIZE=$((4 << 30))
mkdir "$work/cuda" "$work/jobs"

unpack() {
  if command -v xz >/dev/null; then
    xz -dc "$packed/fit-check.xz" >"$program"
  else
    python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)' \
      "$packed/fit-check.xz" >"$program"
  fi && chmod +x "$program"
}

# verify NAME CAP ARGUMENTS: runs a job for at most CAP seconds.
verify() {
  local name=$1 cap=$2 left=$((until_second - SECONDS))
  shift 2
  if [ "$left" -lt "$cap" ]; then cap=$left; fi
  if [ "$cap" -lt 20 ]; then
    echo "== $name: no time left"
    return
  fi
  echo "== $name (second $SECONDS, for at most $cap s)"
  # Where CubeCL looks for its configuration: the working folder.
  mkdir "$work/jobs/$name" && cd "$work/jobs/$name" || return
  printf '[autotune.decisions]\nfile = "%s/decisions.jsonl"\n' "$PWD" >cubecl.toml
  timeout -k 5 "$cap" "$program" verify "$@" --device cuda "${driver[@]}" --timeout $((cap - 10)) \
    --format json --output answer.json
  echo "status $?, second $SECONDS"
  tar -czf "$out/jobs.tar.gz" -C "$work" jobs
}

made() { cat "$out/records.jsonl" "$out/largest_batches.jsonl" | wc -l; }

make_records() {
  getconf GNU_LIBC_VERSION
  timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv
  unpack || return 1
  "$program" --version || return 1
  if [ ! -s "$CUDA_PATH/nvvm/libdevice/libdevice.10.bc" ]; then
    echo "no libdevice.10.bc in $CUDA_PATH/nvvm/libdevice"
    return 1
  fi
  timeout 30 "$program" verify --list
  touch "$out/records.jsonl" "$out/largest_batches.jsonl"
  local before precision model
  before=$(made)
  # Tuned as people run it, with the tuner's decisions and the whole device beside burn's pools (NVML).
  for precision in fp32:240 mixed:150; do
    for model in "${models[@]}"; do
      verify "$model-${precision%:*}" "${precision#*:}" "$model" --precision "${precision%:*}" \
        --record "$out/records.jsonl"
    done
  done
  # The largest batch for 24 GB trains, and one more does not; another process holds the rest of the card.
  verify "${models[0]}-max-batch" 120 "${models[0]}" --max-batch --memory 22GiB --record "$out/largest_batches.jsonl"
  echo "done after $SECONDS s: $(($(made) - before)) records made"
  [ "$(made)" -gt "$before" ]
}

make_records 2>&1 | tee -a "$out/log"
exit "${PIPESTATUS[0]}"
