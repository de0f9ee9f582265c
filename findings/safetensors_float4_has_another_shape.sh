#!/usr/bin/env bash
# Claim: a PyTorch 4-bit float tensor gets another shape in a safetensors file. PyTorch counts pairs of values (dtype
#   float4_e2m1fn_x2, one byte each), safetensors counts values, so the last dimension doubles: a parameter count from the header
#   is twice that of the model. Loading the file gives PyTorch's shape back; the lazy slice of the same tensor reports
#   the file's shape and cannot be read.
# Packages: safetensors 0.8.0 and torch 2.15.0 from PyPI.
# Most would guess: shapes in the header are the tensor's shapes, as for every other dtype.
# Seen: [4, 8] in PyTorch, [4, 16] of type F4 in the header, [4, 8] when loaded; the slice says [4, 16] and raises.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6 safetensors==0.8.0

cat > "$work/see.py" <<'PY'
import json
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "weights.safetensors"
    weight = torch.zeros(4, 8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    save_file({"weight": weight}, path)
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["weight"]
    print("PyTorch:", list(weight.shape), weight.numel(), "elements")
    print("header:", header["shape"], header["dtype"], "in", header["data_offsets"][1], "bytes")
    print("loaded:", list(load_file(path)["weight"].shape))
    with safe_open(path, "pt") as file:
        part = file.get_slice("weight")
        print("slice:", part.get_shape(), end=" ")
        try:
            print("read", list(part[0:2].shape))
        except RuntimeError as error:
            print("RuntimeError:", error)
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
PyTorch: [4, 8] 32 elements
header: [4, 16] F4 in 32 bytes
loaded: [4, 8]
slice: [4, 16] RuntimeError: shape '[4, 16]' is invalid for input of size 32
SEEN
