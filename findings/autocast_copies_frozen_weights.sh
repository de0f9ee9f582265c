#!/usr/bin/env bash
# Claim: autocast keeps one 16-bit copy of a weight for all its uses only if the weight is trainable. A frozen weight is cast
#   again at each use, and if a gradient has to pass through it, backward keeps every copy. So freezing a
#   weight that a step uses several times (shared layers, a recurrent cell) takes more memory than training it.
# Package: torch 2.15.0 from PyPI.
# Most would guess: freezing a weight can only save memory, and the cache of autocast is about weights.
# Seen: a 512x512 fp32 layer used 4 times: 1 saved copy (0.5 MiB) while trainable, 4 copies (2 MiB) when frozen.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6

cat > "$work/see.py" <<'PY'
import torch
from torch.autograd.graph import saved_tensors_hooks

layer = torch.nn.Linear(512, 512, bias=False)
x = torch.ones(4, 512, requires_grad=True)
for trainable in (True, False):
    layer.requires_grad_(trainable)
    copies = {}

    def keep(tensor):
        if tensor.shape == (512, 512):
            storage = tensor.untyped_storage()
            copies[storage.data_ptr()] = (tensor.dtype, storage.nbytes())
        return tensor

    with torch.autocast("cpu", dtype=torch.bfloat16), saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = x
        for _ in range(4):
            hidden = layer(hidden)
    hidden.sum().backward()
    print(
        "trainable:" if trainable else "frozen:",
        len(copies),
        "copies of the weight,",
        sum(size for _, size in copies.values()),
        "bytes",
        *{str(dtype) for dtype, _ in copies.values()},
    )
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
trainable: 1 copies of the weight, 524288 bytes torch.bfloat16
frozen: 4 copies of the weight, 2097152 bytes torch.bfloat16
SEEN
