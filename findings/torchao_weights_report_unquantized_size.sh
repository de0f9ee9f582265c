#!/usr/bin/env bash
# Claim: a weight that torchao has quantized to int8 still reports the size of its 16-bit original: dtype, numel() *
#   element_size() and even untyped_storage().nbytes(). The bytes that exist are in inner tensors that only
#   __tensor_flatten__ names. So every usual sum over parameters, storages included, says that quantizing saved nothing.
# Packages: torchao 0.18.0 and torch 2.15.0 from PyPI.
# Most would guess: numel() * element_size() may mislead for a subclass, but the storage has the bytes that are held.
# Seen: a 1024x1024 bf16 layer after Int8WeightOnlyConfig: 2,097,152 bytes by elements and by storage, 1,053,696 held.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6 torchao==0.18.0

cat > "$work/see.py" <<'PY'
import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_

model = torch.nn.Sequential(torch.nn.Linear(1024, 1024, bias=False, dtype=torch.bfloat16))
quantize_(model, Int8WeightOnlyConfig())
(weight,) = model.parameters()
names, _ = weight.__tensor_flatten__()
inner = [getattr(weight, name) for name in names]
print(type(weight).__name__, weight.dtype, list(weight.shape))
print("numel * element_size:", weight.numel() * weight.element_size())
print("untyped_storage().nbytes():", weight.untyped_storage().nbytes())
print(
    "held:",
    sum(tensor.untyped_storage().nbytes() for tensor in inner),
    *(f"{tensor.dtype} {list(tensor.shape)}" for tensor in inner),
)
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
Int8Tensor torch.bfloat16 [1024, 1024]
numel * element_size: 2097152
untyped_storage().nbytes(): 2097152
held: 1053696 torch.int8 [1024, 1024] torch.float32 [1024, 1] torch.int8 [1024, 1]
SEEN
