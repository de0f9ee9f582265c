#!/usr/bin/env bash
# The recorder's tests, with PyTorch in an environment that is kept between runs: its path is printed last.
# Status 3 if PyTorch cannot be installed here.
#
#   FIT_CHECK_TORCH_ENV=~/.cache/torch .ci/torch.sh
set -euo pipefail
cd "$(dirname "$0")/.."
environment=${FIT_CHECK_TORCH_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/fit-check-torch}
python=$environment/bin/python

if ! "$python" -c 'import torch, torchvision, transformers, timm, pytest' 2>/dev/null; then
  # The usual wheel is the one with CUDA; it needs no GPU.
  if ! { python3 -m venv "$environment" &&
    "$environment/bin/pip" install --quiet torch torchvision transformers timm peft accelerate bitsandbytes pytest ruff; } >&2; then
    echo "not tested: PyTorch cannot be installed into $environment" >&2
    exit 3
  fi
fi
{
  "$environment/bin/ruff" check estimator/torch
  "$environment/bin/ruff" format --check estimator/torch
  (cd estimator/torch/recorder && "$python" -m pytest --quiet tests)
} >&2
echo "$python"
