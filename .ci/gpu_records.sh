#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, with what `.ci/gpu_pack.sh` has packed: makes the records that are worth
# most, in that order, each written as soon as it is made, and ends within nine minutes.
#
#   .ci/gpu_records.sh OUT [SECONDS]
#
# OUT/records.jsonl and OUT/largest_batches.jsonl are lines for docs/data; OUT/choices.log is what
# burn's tuner chose, OUT/log what was said. FIT_CHECK_DRIVER="--driver counting" tries the script without a GPU.
set -uo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
until_second=${2:-520}
here=$(cd "$(dirname "$0")/.." && pwd)
program=$(mktemp -d)/fit-check
# Python unpacks where `xz` is not there.
python3 - "$here/.gpu/fit-check.xz" "$program" <<'PYTHON'
import lzma, shutil, sys
with lzma.open(sys.argv[1]) as packed, open(sys.argv[2], "wb") as program:
    shutil.copyfileobj(packed, program)
PYTHON
chmod +x "$program"
export CUDA_PATH=${CUDA_PATH:-$here/.gpu}
# Where CubeCL looks for its configuration: the working folder.
cd "$out"
printf '[autotune.logger]\nlevel = "full"\nfile = "%s/choices.log"\nappend = true\n' "$out" >cubecl.toml
touch records.jsonl largest_batches.jsonl
read -ra driver <<<"${FIT_CHECK_DRIVER:-}"

left() { echo $((until_second - SECONDS)); }

verify() {
  local seconds
  seconds=$(left)
  if [ "$seconds" -lt 15 ]; then
    echo "no time left for: $*" >>log
    return
  fi
  echo "== $* (second $SECONDS)" | tee -a log
  timeout "$seconds" "$program" verify "$@" --device cuda "${driver[@]}" --timeout "$seconds" --quiet >>log 2>&1
  echo "status $?, second $SECONDS" | tee -a log
}

"$program" verify --list >>log 2>&1
command -v nvidia-smi >/dev/null && nvidia-smi >>log 2>&1
# (a) and (c): tuned as people run it, and the whole device beside burn's pools (NVML).
for job in resnet-50 bert-base gpt2 transformer-base pix2pixhd-512p bilstm-cnn-crf; do
  verify "$job" --record "$out/records.jsonl"
done
# (d): the largest batch for 24 GB trains, and one more does not.
verify resnet-50 --max-batch --memory 22GiB --record "$out/largest_batches.jsonl"
for job in resnet-50 bert-base gpt2 transformer-base pix2pixhd-512p bilstm-cnn-crf; do
  verify "$job" --precision mixed --record "$out/records.jsonl"
done
echo "done after $SECONDS s: $(wc -l <records.jsonl) records, $(wc -l <largest_batches.jsonl) largest batches"
