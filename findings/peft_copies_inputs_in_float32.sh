#!/usr/bin/env bash
# Claim: peft makes the LoRA adapters of a bf16 model float32, and each adapted layer then casts its input to float32 and keeps
#   that copy for backward: one copy for each of query, key and value, although all three read the same tensor. A larger
#   rank hardly matters; the number format of the adapters decides.
# Packages: peft 0.21.2 and torch 2.15.0 from PyPI.
# Most would guess: LoRA on a bf16 model keeps the bf16 input once, and the adapters add what their rank needs.
# Seen: 1024 tokens of width 256 through three projections, rank 4: 3,194,880 bytes kept for backward besides weights with the
#   float32 adapters, 548,864 with bf16 ones: 5.8 times as much; the input itself has 524,288.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6 transformers==5.24.0 accelerate==1.15.0 peft==0.21.2

cat > "$work/see.py" <<'PY'
import torch
from peft import LoraConfig, get_peft_model
from torch.autograd.graph import saved_tensors_hooks


class Projections(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("query", "key", "value"):
            setattr(self, name, torch.nn.Linear(256, 256, bias=False, dtype=torch.bfloat16))

    def forward(self, x):
        return self.query(x), self.key(x), self.value(x)


for name, options in (("adapters as peft makes them", {}), ("bf16 adapters", {"autocast_adapter_dtype": False})):
    config = LoraConfig(r=4, target_modules=["query", "key", "value"])
    model = get_peft_model(Projections(), config, **options)
    weights = {weight.untyped_storage()._cdata for weight in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = (tensor, storage)
        return tensor

    x = torch.ones(1024, 256, dtype=torch.bfloat16, requires_grad=True)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        model(x)
    copies = [tensor for tensor, _ in kept.values() if tensor.shape == x.shape]
    dtypes = {str(weight.dtype) for weight in model.parameters() if weight.requires_grad}
    print(f"{name} ({', '.join(dtypes)}):")
    print(f"  {len(copies)} x {copies[0].dtype} {list(copies[0].shape)}")
    print(f"  {sum(storage.nbytes() for _, storage in kept.values())} bytes kept for backward, without weights")
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
adapters as peft makes them (torch.float32):
  3 x torch.float32 [1024, 256]
  3194880 bytes kept for backward, without weights
bf16 adapters (torch.bfloat16):
  1 x torch.bfloat16 [1024, 256]
  548864 bytes kept for backward, without weights
SEEN
