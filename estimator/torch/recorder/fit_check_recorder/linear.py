"""`linear` with a bias: where it is not one fused operator, PyTorch adds the bias in place.

It adds out of place while a dispatch mode is active (native/Linear.cpp asks `isTensorSubclassLike`), and the
person's program has none. So the addition that `linear` makes gives back its first operand. In a function that
`torch.func` transforms, PyTorch adds out of place on a card, too.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

import torch
from torch.nn import functional

_ADD = torch.ops.aten.add.Tensor
code: CodeType | None = None


def install() -> None:
    """Let `linear` be called by a function whose frame is known."""
    global code
    original = functional.linear

    def linear(*args: Any, **kwargs: Any) -> torch.Tensor:
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return transformed(*args, **kwargs)
        return original(*args, **kwargs)

    def transformed(*args: Any, **kwargs: Any) -> torch.Tensor:
        return original(*args, **kwargs)

    linear.__wrapped__ = original  # type: ignore[attr-defined]
    functional.linear = linear
    code = linear.__code__
