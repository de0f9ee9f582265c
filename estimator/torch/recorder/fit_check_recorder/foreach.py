"""Optimizers and gradient clipping take their multi-tensor paths for tensors on the card.

PyTorch takes these paths for plain tensors alone (`_foreach_supported_types`). On a real card the person's
tensors are plain ones.
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils import clip_grad
from torch.optim import optimizer
from torch.utils import _foreach_utils

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


def install() -> None:
    """Count tensors without data as plain ones."""
    optimizer._foreach_supported_types.append(FakeTensor)
    _foreach_utils._foreach_supported_types.append(FakeTensor)

    def has_foreach_support(tensors: list[torch.Tensor], device: torch.device) -> bool:
        return device.type in ("cpu", "cuda") and all(tensor is None or type(tensor) in _PLAIN for tensor in tensors)

    _foreach_utils._has_foreach_support = has_foreach_support
    if hasattr(clip_grad, "_has_foreach_support"):
        clip_grad._has_foreach_support = has_foreach_support
