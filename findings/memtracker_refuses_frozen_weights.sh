#!/usr/bin/env bash
# Claim: PyTorch's own memory tracker (torch.distributed._tools.mem_tracker.MemTracker) raises at the first forward pass
#   of a model with a frozen parameter, so it has no answer for LoRA, a frozen backbone or frozen embeddings.
# Package: torch 2.15.0 from PyPI.
# Most would guess: frozen parameters are the easy case, with no gradient and no optimizer state.
# Seen: all parameters trainable: a peak; one of them frozen: RuntimeError, since the tracker registers a gradient hook on
#   each parameter of a module when it first sees the module in a forward pass with gradients.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6

cat > "$work/see.py" <<'PY'
import warnings

import torch
from torch.distributed._tools.mem_tracker import MemTracker

warnings.simplefilter("ignore")  # Module hooks warn of the error that is printed below.
for frozen in (False, True):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    model[0].weight.requires_grad_(not frozen)
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    print("one frozen weight:" if frozen else "all trainable:", end=" ")
    try:
        with tracker:
            for _ in range(2):
                model(torch.ones(8, 64)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                tracker.reset_mod_stats()
        print("peak", tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"], "bytes")
    except RuntimeError as error:
        print("RuntimeError:", error)
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
all trainable: peak 166160 bytes
one frozen weight: RuntimeError: cannot register a hook on a tensor that doesn't require gradient
SEEN
