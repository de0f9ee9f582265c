#!/usr/bin/env bash
# Claim: torch.nn.RMSNorm of a bf16 tensor keeps two float32 copies of its input for backward on the CPU; on CUDA, and for
#   LayerNorm on either, what is kept is the bf16 input itself. So a memory trace of a current language model that runs
#   on CPU tensors in place of GPU tensors over-counts each norm, and only if it is an RMSNorm.
# Package: torch 2.15.0 from PyPI (CUDA's side by fake tensors, which pick the operator and run nothing).
# Most would guess: an operator keeps the same tensors on every device, and RMSNorm keeps no more than LayerNorm.
# Seen: an input of 16,000 bytes: RMSNorm keeps 64,032 bytes besides the weight on the CPU and 16,032 on CUDA, LayerNorm 16,032
#   and 16,064.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6

cat > "$work/see.py" <<'PY'
import contextlib

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

for name, device, mode in (("cpu", "cpu", contextlib.nullcontext()), ("fake cuda", "cuda", FakeTensorMode())):
    with mode:
        for kind in (torch.nn.RMSNorm, torch.nn.LayerNorm):
            norm = kind(1000, dtype=torch.bfloat16, device=device)
            weights = {weight.untyped_storage()._cdata for weight in norm.parameters()}
            kept = {}

            def keep(tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in weights:
                    kept[storage._cdata] = (tensor, storage)
                return tensor

            x = torch.ones(8, 1000, dtype=torch.bfloat16, device=device, requires_grad=True)
            with saved_tensors_hooks(keep, lambda tensor: tensor):
                norm(x)
            tensors = [f"{tensor.dtype} {list(tensor.shape)}" for tensor, _ in kept.values()]
            print(f"{name}, {kind.__name__}:", sum(storage.nbytes() for _, storage in kept.values()), "bytes")
            print("  " + ", ".join(tensors))
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
cpu, RMSNorm: 64032 bytes
  torch.float32 [8, 1000], torch.float32 [8, 1], torch.float32 [8, 1000]
cpu, LayerNorm: 16032 bytes
  torch.bfloat16 [8, 1000], torch.bfloat16 [8, 1], torch.bfloat16 [8, 1]
fake cuda, RMSNorm: 16032 bytes
  torch.bfloat16 [8, 1000], torch.float32 [8, 1]
fake cuda, LayerNorm: 16064 bytes
  torch.bfloat16 [8, 1000], torch.float32 [8, 1], torch.float32 [8, 1]
SEEN
