#!/usr/bin/env bash
# Claim: a TorchDispatchMode, the tool with which memory trackers watch a backward pass, changes that pass. Where
#   several gradients of one tensor meet, autograd adds in place; while any dispatch mode is active it adds into a
#   new tensor, even if all tensors are plain. So a tracker sees one gradient more alive than an unwatched run has.
# Package: torch 2.15.0 from PyPI.
# Most would guess: a mode that only calls each operator again sees what runs without it.
# Seen: add_ and a peak of 2 MiB without a mode, add and 3 MiB with one; each gradient takes 1 MiB.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6

cat > "$work/see.py" <<'PY'
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

MIB = 2**20


class Repeat(TorchDispatchMode):
    """Calls each operator as it came, and does nothing else."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def backward(watched):
    x = torch.ones(MIB // 4, requires_grad=True)
    hidden = x * 1.0
    loss = (hidden * 2 + hidden * 3 + hidden * 4 + hidden * 5).sum()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        if watched:
            with Repeat():
                loss.backward()
        else:
            loss.backward()
    sums = {event.name for event in recorded.events() if event.name in ("aten::add", "aten::add_")}
    alive = peak = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]" and abs(event.nbytes()) >= MIB // 2:
            alive += event.nbytes()
            peak = max(peak, alive)
    return sums, peak // MIB


backward(False)
for watched in (False, True):
    sums, peak = backward(watched)
    print("with a mode:" if watched else "unwatched:", *sums, "peak", peak, "MiB")
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
unwatched: aten::add_ peak 2 MiB
with a mode: aten::add peak 3 MiB
SEEN
