"""`tensor.type(torch.cuda.FloatTensor)`: a move to the card under its oldest name.

PyTorch initialises the driver before any operator is seen.
"""

from __future__ import annotations

from typing import Any

import torch


def install() -> None:
    """Move a tensor to the card without a driver."""
    original = torch.Tensor.type

    def type_(tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        name = dtype if isinstance(dtype, str) else _name(dtype)
        if not name.startswith("torch.cuda."):
            return original(tensor, dtype, non_blocking, **kwargs)
        plain = getattr(torch, name.removeprefix("torch.cuda."))
        # A tensor that is on a card stays on its own.
        device = tensor.device if tensor.device.type == "cuda" else torch.device("cuda")
        return tensor.to(device, plain.dtype, non_blocking=non_blocking)

    torch.Tensor.type = type_  # type: ignore[method-assign,assignment]


def _name(kind: Any) -> str:
    """The name of a type of tensors, as PyTorch takes it in place of the type."""
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__name__', '')}"
