"""Values that are known: small tensors on the card whose inputs all came from the program itself.

Masks, labels, positions, the step of an optimizer and the scale of a GradScaler decide which branch a
program takes. Such a tensor carries its value on the processor for as long as nothing unknown is written to
its storage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from .roles import tensors_in

if TYPE_CHECKING:
    from .mode import Operator

#: Tensors are followed up to so many bytes: what decides a branch is a mask or a scalar, not an activation.
_MOST_BYTES = 1 << 17
#: The tokens of a whole batch, and masks of them, may be more: what a program reads of them decides a length.
_MOST_INTEGERS = 1 << 20

_CREATES = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_UNKNOWN = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like",
            "bernoulli", "multinomial", "native_dropout", "normal"} | _CREATES  # fmt: skip
#: Operators whose result one input can decide whatever the other is, and the value with which it does.
_DECISIVE = {"bitwise_or": True, "logical_or": True, "__or__": True,
             "bitwise_and": False, "logical_and": False, "__and__": False}  # fmt: skip


class Value:
    """The value of a tensor; `valid` is shared by all views of its storage."""

    __slots__ = ("tensor", "valid")

    def __init__(self, tensor: torch.Tensor, valid: list[bool]) -> None:
        self.tensor = tensor
        self.valid = valid


def is_small(tensor: torch.Tensor) -> bool:
    """Whether the values of so large a tensor are followed."""
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.numel() * tensor.element_size() <= _MOST_BYTES
    return tensor.numel() <= _MOST_INTEGERS


def of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The known value of a tensor on the card."""
    value = tensor.__dict__.get("_fit_value")
    return value.tensor if value is not None and value.valid[0] else None


def know(tensor: torch.Tensor, make: Callable[[], torch.Tensor], source: torch.Tensor) -> None:
    """Note a value, if it is small and comes from a real tensor that is no parameter."""
    if type(source) is torch.Tensor and is_small(tensor) and not source.requires_grad:
        tensor._fit_value = Value(make(), [True])


def overwrite(tensor: torch.Tensor, value: torch.Tensor | None) -> None:
    """Something is written into a tensor."""
    known = tensor.__dict__.get("_fit_value")
    if known is None:
        return
    if value is None or not known.valid[0] or 0 in known.tensor.stride():
        known.valid[0] = False  # elements that share their memory cannot be written one by one
    else:
        known.tensor.copy_(value)


def compute(
    func: OpOverload, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, list[Value]] | None:
    """The result of an operator on the processor, if the values of all its inputs are known."""
    name = operator.name.partition("::")[2]
    if name in _UNKNOWN or operator.random:
        return None
    inputs: list[Value] = []
    for tensor in tensors_in((args, kwargs)):
        if type(tensor) is FakeTensor:
            value = tensor.__dict__.get("_fit_value")
            if value is None or not value.valid[0]:
                return _decided(func, name, args) if name in _DECISIVE else None
            inputs.append(value)
        elif not is_small(tensor):
            return None
    if not inputs and not _makes_small(args):
        return None
    real_args, real_kwargs = tree_map_only(FakeTensor, of, (args, kwargs))
    if "device" in real_kwargs:
        real_kwargs = {**real_kwargs, "device": torch.device("cpu")}
    if real_kwargs.get("pin_memory"):
        real_kwargs = {**real_kwargs, "pin_memory": False}
    try:
        return func(*real_args, **real_kwargs), inputs
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError, AssertionError):
        return None


def _decided(func: OpOverload, name: str, args: tuple[Any, ...]) -> tuple[Any, list[Value]] | None:
    """`x | True` and `x & False`, where `x` is unknown: a text that has its full length has ended, whatever it says."""
    pair = args[:2]
    if any(type(tensor) is not FakeTensor or not is_small(tensor) for tensor in pair):
        return None
    if _DECISIVE[name] and any(tensor.dtype != torch.bool for tensor in pair):
        return None  # a number has more bits than the one that is set
    known = [of(tensor) for tensor in pair]
    if not any(value is not None and bool((value.bool() == _DECISIVE[name]).all()) for value in known):
        return None
    for place, tensor in enumerate(pair):
        if known[place] is None:
            known[place] = torch.zeros(tensor.shape, dtype=tensor.dtype)
    return func(*known), []


def _makes_small(args: tuple[Any, ...]) -> bool:
    """Whether a factory with these arguments (`zeros`, `arange`, `full`) makes a small tensor."""
    elements = 1
    for argument in args:
        if isinstance(argument, (list, tuple)):
            for size in argument:
                elements *= size if isinstance(size, int) else _MOST_BYTES
        elif isinstance(argument, (int, float)):
            elements = max(elements, int(abs(argument)) if math.isfinite(argument) else 0)
    return elements * 8 <= _MOST_BYTES


def keep(
    func: OpOverload,
    operator: Operator,
    args: tuple[Any, ...],
    result: Any,
    known: tuple[Any, list[Value]] | None,
) -> None:
    """Give the outputs their values, or forget those of tensors that something unknown is written to."""
    if known is None:
        if operator.mutates:
            for argument, declared in zip(args, func._schema.arguments, strict=False):
                if declared.alias_info is not None and declared.alias_info.is_write:
                    for tensor in tensors_in(argument):
                        overwrite(tensor, None)
        return
    value, inputs = known
    cells = {
        item.tensor.untyped_storage()._cdata: item.valid for item in inputs if isinstance(item.tensor, torch.Tensor)
    }
    for tensor, real in zip(tensors_in(result), tensors_in(value), strict=False):
        if type(tensor) is FakeTensor and tensor.shape == real.shape and is_small(real):
            valid = cells.get(real.untyped_storage()._cdata, [True])
            tensor._fit_value = Value(real, valid)
