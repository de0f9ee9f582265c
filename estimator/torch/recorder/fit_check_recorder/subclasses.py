"""Classes of tensors that carry more than data (`as_subclass`), on the card: torchvision's boxes, MONAI's volumes.

Such a class is Python's alone, and a tensor without data has a class already. So it gets one that is both. What makes
it fake lies beside it, since these classes copy and replace the attributes of their tensors.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

if TYPE_CHECKING:
    from .mode import CardMode

#: The plain tensor without data for each that has a class of the program.
_plain: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
#: The classes that are both. A mode asks at every operator.
both: set[type] = set()
#: The program's class of each. A program may ask for the class of a tensor that is both.
_kinds: dict[type, type] = {}


def plain(tensor: Any) -> Any:
    """The tensor without the class that the program gave it, if it is on the card."""
    return _plain.get(tensor, tensor) if type(tensor) in both else tensor


def without(value: Any) -> Any:
    """The same for all tensors in nested lists, tuples and dictionaries."""
    return tree_map_only(torch.Tensor, plain, value)


#: Operators that give a tensor another form, or another storage, in place.
RESHAPING = {f"aten::{name}_" for name in ("unsqueeze", "squeeze", "t", "transpose", "swapaxes", "swapdims",
                                           "as_strided", "resize", "resize_as", "set")}  # fmt: skip


def reshape(mode: CardMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Run such an operator on a tensor that is both: its form is that of the plain one afterwards."""
    result: torch.Tensor = args[0]
    with mode:
        func(*without(args), **without(kwargs))
    with torch._C.DisableTorchFunctionSubclass():
        result.data = plain(result)
    return result


def real(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the processor without such a class: its values are those of a plain one."""
    kind = type(tensor)
    if kind in (torch.Tensor, FakeTensor, torch.nn.Parameter) or not _is_pythons_alone(kind):
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return torch.ops.aten.alias(tensor)


def _is_pythons_alone(kind: type) -> bool:
    return getattr(kind, "__torch_dispatch__", None) is torch._C._disabled_torch_dispatch_impl


class _Card(FakeTensor):
    """A tensor without data whose functions give back the class of their arguments, as any class inherits it."""


# PyTorch takes that from each class with a dispatch, when the class is made.
_Card.__torch_function__ = classmethod(torch.Tensor.__torch_function__.__func__)  # type: ignore[attr-defined,assignment]


@functools.cache
def _both(kind: type) -> type:
    of_the_plain = {
        name: property(lambda tensor, name=name: getattr(_plain[tensor], name))
        for name in ("fake_device", "fake_mode", "constant", "real_tensor", "dispatch_keys", "_fit_value")
    }
    # `__repr__` and the like of the program's class come first.
    result = type(kind.__name__, _bases(kind), {"__module__": kind.__module__, **of_the_plain})
    if kind is not torch.Tensor and vars(result).get("__torch_function__") is torch._C._disabled_torch_function_impl:
        del result.__torch_function__
    both.add(result)
    _kinds[result] = kind
    return result


def _bases(kind: type) -> tuple[type, ...]:
    """Among themselves the classes are as the program's are: an operator takes a class and those that it is made of."""
    if kind is torch.Tensor:
        return (FakeTensor,)
    parents = (base for base in kind.__bases__ if issubclass(base, torch.Tensor) and base is not torch.Tensor)
    parent = next(parents, None)
    return kind, _Card if parent is None else _both(parent)


def install(mode: CardMode) -> None:
    """Let a tensor on the card have any class that one of the processor can have."""
    original = torch.Tensor.as_subclass

    def as_subclass(tensor: torch.Tensor, cls: type) -> Any:
        cls = _kinds.get(cls, cls)
        if not isinstance(tensor, FakeTensor):
            return original(tensor, cls)
        before = plain(tensor)
        with torch._C.DisableTorchFunctionSubclass():
            result = torch.ops.aten.alias(tensor)
        if cls not in both:  # a tensor that has been here brings its class along
            # fastai gives the plain tensor the attributes of the one that it is made of, in place of its own.
            is_made_plain = cls is torch.Tensor and type(tensor) in both
            if not is_made_plain and (cls is torch.Tensor or not _is_pythons_alone(cls)):
                return result
            cls = _both(cls)
        beside = FakeTensor(mode.fake, mode.bare(result), result.fake_device)
        vars(beside).update({name: known for name, known in vars(before).items() if name.startswith("_fit_")})
        vars(result).clear()
        result.__class__ = cls
        _plain[result] = beside
        return result

    torch.Tensor.as_subclass = as_subclass  # type: ignore[method-assign,assignment]
