#!/usr/bin/env bash
# Claim: FSDP2 (fully_shard) cuts a parameter by whole rows, as many on each rank as the first rank gets, until none are left.
#   Nine rows on eight ranks are 2, 2, 2, 2, 1, 0, 0, 0: three ranks own nothing and still hold storage for
#   two rows. Each rank so takes 1.78 times its eighth.
# Package: torch 2.15.0 from PyPI (ranks are played one by one with PyTorch's own fake process group, on the CPU).
# Most would guess: parameters are flattened and cut evenly, as in FSDP1 and ZeRO, or rows differ by one at the most.
# Seen: a [9, 4096] weight: rows as above, 32,768 bytes of storage on every rank; an eighth of the weight has 18,432.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6

cat > "$work/see.py" <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

RANKS = 8
for rank in range(RANKS):
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=RANKS)
    layer = torch.nn.Linear(4096, 9, bias=False)
    fully_shard(layer, mesh=init_device_mesh("cpu", (RANKS,)))
    local = layer.weight.to_local()
    print(f"rank {rank}: {local.shape[0]} rows, {local.untyped_storage().nbytes()} bytes of storage")
    dist.destroy_process_group()
print(f"an eighth of the weight: {9 * 4096 * 4 // RANKS} bytes")
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
rank 0: 2 rows, 32768 bytes of storage
rank 1: 2 rows, 32768 bytes of storage
rank 2: 2 rows, 32768 bytes of storage
rank 3: 2 rows, 32768 bytes of storage
rank 4: 1 rows, 32768 bytes of storage
rank 5: 0 rows, 32768 bytes of storage
rank 6: 0 rows, 32768 bytes of storage
rank 7: 0 rows, 32768 bytes of storage
an eighth of the weight: 18432 bytes
SEEN
