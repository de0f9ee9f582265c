#!/usr/bin/env bash
# Claim: under torch.inference_mode a TorchDispatchMode receives composite operators whole (linear, layer_norm,
#   scaled_dot_product_attention); under torch.no_grad it receives the operators that these consist of. So a memory
#   tracker that works for evaluation with no_grad misses every intermediate tensor with inference_mode.
# Package: torch 2.15.0 from PyPI.
# Most would guess: inference_mode is a faster no_grad, and the same operators arrive.
# Seen: a projection, a norm and attention arrive as the kernels that run (six operators) under no_grad, and as three
#   composite operators under inference_mode.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6

cat > "$work/see.py" <<'PY'
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func).removeprefix("aten."))
        return func(*args, **(kwargs or {}))


x = torch.ones(1, 2, 16, 8)
weight = torch.ones(8, 8)
bias = torch.ones(8)
for mode in (torch.no_grad, torch.inference_mode):
    with mode(), Names() as seen:
        hidden = functional.linear(x, weight, bias)
        hidden = functional.layer_norm(hidden, (8,))
        functional.scaled_dot_product_attention(hidden, hidden, hidden)
    print(mode.__name__)
    print("  " + "\n  ".join(seen.names))
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
no_grad
  view.default
  t.default
  addmm.default
  _unsafe_view.default
  native_layer_norm.default
  _scaled_dot_product_flash_attention_for_cpu.default
inference_mode
  linear.default
  layer_norm.default
  scaled_dot_product_attention.default
SEEN
