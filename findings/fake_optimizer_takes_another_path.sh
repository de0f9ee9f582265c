#!/usr/bin/env bash
# Claim: an optimizer under FakeTensorMode does not do what it does on a GPU. PyTorch updates plain CUDA parameters together
#   (foreach), which needs temporaries as large as all parameters; it decides so by the exact type of each
#   parameter, and a fake one is a FakeTensor. So a trace with fake tensors shows a loop over the parameters, with temporaries
#   as large as one parameter.
# Package: torch 2.15.0 from PyPI (no GPU is needed: the parameters are fake).
# Most would guess: fake CUDA tensors take the branches that CUDA tensors take; that is what they are for.
# Seen: the second Adam step over 16 parameters of 4 MiB: 12 MiB of temporaries as traced; 64 MiB with foreach=True, and
#   the same 64 MiB with no option once FakeTensor is in PyTorch's list of types for foreach.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6

cat > "$work/see.py" <<'PY'
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.optimizer import _foreach_supported_types
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MIB = 2**20


class Temporaries(TorchDispatchMode):
    """The most bytes in storages that were born under this mode."""

    def __init__(self, known):
        super().__init__()
        self.known = {tensor.untyped_storage()._cdata for tensor in known}
        self.alive = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cuda":
                continue
            storage = tensor.untyped_storage()
            if storage._cdata in self.known:
                continue
            self.known.add(storage._cdata)
            self.alive += storage.nbytes()
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self.died, storage._cdata, storage.nbytes())
        return result

    def died(self, key, size):
        self.known.discard(key)
        self.alive -= size


def trace(foreach):
    with FakeTensorMode():
        parameters = [torch.nn.Parameter(torch.empty(1024, 1024, device="cuda")) for _ in range(16)]
        optimizer = torch.optim.Adam(parameters, foreach=foreach)
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
        optimizer.step()
        known = [*parameters, *(parameter.grad for parameter in parameters)]
        known += [tensor for state in optimizer.state.values() for tensor in state.values()]
        with Temporaries(known) as seen:
            optimizer.step()
    return f"{seen.peak // MIB} MiB of temporaries for 64 MiB of parameters"


print("as traced:", trace(None))
print("foreach=True:", trace(True))

_foreach_supported_types.append(FakeTensor)
print("fake tensors taken for plain ones:", trace(None))
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
as traced: 12 MiB of temporaries for 64 MiB of parameters
foreach=True: 64 MiB of temporaries for 64 MiB of parameters
fake tensors taken for plain ones: 64 MiB of temporaries for 64 MiB of parameters
SEEN
