"""Where gradients of several uses of a tensor meet.

PyTorch's engine adds them in place if it holds the only reference to the first. It never does so while a
dispatch mode is active (`can_accumulate_inplace` in torch/csrc/autograd/input_buffer.cpp, which asks
`isTensorSubclassLike`), and the person's program has no such mode. So here the sum is the first operand
itself, wherever the engine would have added in place.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._ops import OpOverload

from . import linear

if TYPE_CHECKING:
    from .mode import CardMode

_ADD = torch.ops.aten.add.Tensor

#: Nodes whose own formula adds two tensors (tools/autograd/derivatives.yaml, FunctionsManual.cpp).
_FORMULAS_THAT_ADD = ("Var", "Std", "NativeLayerNormBackwardBackward", "NativeBatchNormBackward",
                      "Logcumsumexp", "Cumprod", "Prod", "Linalg")  # fmt: skip


class Joins:
    """Recognises an addition that the engine makes to join two gradients."""

    def __init__(self) -> None:
        self._engine_code = torch.autograd.graph._engine_run_backward.__code__
        self._counts: tuple[int, int] | None = None
        self._calibrating = False
        #: Whether `torch.func` transforms what runs backward: PyTorch adds out of place there.
        self.transformed = False

    def calibrate(self, mode: CardMode) -> None:
        """Learn which reference counts a tensor has that only the engine holds: they differ by version."""
        storages = mode.recording.storages
        self._calibrating = storages.ignores = True
        try:
            with temporarily_clear_interpreter_stack(), torch.enable_grad():
                leaf = mode.empty((2,), (1,), torch.float32, "cuda").requires_grad_()
                middle = leaf * 2
                (middle.sin() + middle.cos()).sum().backward()
        finally:
            self._calibrating = storages.ignores = False

    def in_place(self, func: OpOverload, args: tuple[Any, ...]) -> torch.Tensor | None:
        """The first operand, if the engine would have added the second to it in place."""
        if func is not _ADD:
            return None
        old, new = args[0], args[1]
        # This method, `CardMode.run` and `__torch_dispatch__` lie above the caller.
        caller = sys._getframe(2).f_back
        if caller is not None and caller.f_code is linear.code:
            return old
        if torch.is_grad_enabled() or self.transformed:
            return None
        if not isinstance(new, torch.Tensor) or old.shape != new.shape or old.dtype != new.dtype:
            return None
        if not self._called_by_engine(caller):
            return None
        counts = _reference_counts(old)
        if self._calibrating:
            self._counts = counts
            return None
        return old if counts == self._counts and _is_dense(old) else None

    def _called_by_engine(self, caller: FrameType | None) -> bool:
        """Whether no Python code lies between the engine and the operator."""
        if caller is not None and caller.f_code is not self._engine_code:
            return False
        node = torch._C._current_autograd_node()
        return node is not None and not node.name().startswith(_FORMULAS_THAT_ADD)


def _reference_counts(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the tensor covers its memory without gaps or overlaps."""
    expected = 1
    dimensions = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    for stride, size in dimensions:
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
