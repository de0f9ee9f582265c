"""Numbers that a program reads from the card and that are not known: zeros by which it may divide.

A precision is a count divided by a count, and the noise of a picture is a logarithm of its error. On a card the number
is not zero, and what is made of it is not known either. So the quotient and the logarithm are zeros of this kind, too.
"""

from __future__ import annotations

import functools
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from . import subclasses, values


class UnknownFloat(float):
    """An unknown `float`."""

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what is read from a file, is a plain number."""
        return float, (float(self),)


class UnknownInt(int):
    """An unknown `int`."""

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what is read from a file, is a plain number."""
        return int, (int(self),)


def _plain(number: Any) -> Any:
    if type(number) is UnknownFloat:
        return float(number)
    return int(number) if type(number) is UnknownInt else number


def _unknown(number: Any) -> Any:
    """What is made of an unknown number is unknown for as long as it is zero."""
    if type(number) is float and number == 0:
        return UnknownFloat()
    return UnknownInt() if type(number) is int and number == 0 else number


def _calculates(function: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Any, Any], Any]:
    """The method for an operator, of whose numbers at least one is unknown."""

    def method(number: Any, other: Any) -> Any:
        pair = _plain(number), _plain(other)
        try:
            return _unknown(function(*(reversed(pair) if reflected else pair)))
        except ZeroDivisionError:
            whole = function is not operator.truediv and all(isinstance(one, int) for one in pair)
            return UnknownInt() if whole else UnknownFloat()

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _kind in (UnknownFloat, UnknownInt):
        setattr(_kind, f"__{_name}__", _calculates(getattr(operator, _name), False))
        setattr(_kind, f"__r{_name}__", _calculates(getattr(operator, _name), True))


def _logarithm(original: Callable[..., float]) -> Callable[..., float]:
    # numba and pickle look for the function by its module and its name.
    @functools.wraps(original)
    def logarithm(number: Any, *base: Any) -> float:
        return UnknownFloat() if type(number) in (UnknownFloat, UnknownInt) else original(number, *base)

    return logarithm


def _nested(value: Any) -> Any:
    return [_nested(item) for item in value] if isinstance(value, list) else _unknown(value)


def install() -> None:
    """Let tensors without data give such numbers, and logarithms take them."""
    for name in ("log", "log2", "log10"):
        setattr(math, name, _logarithm(getattr(math, name)))
    read, read_all = torch.Tensor.item, FakeTensor.tolist

    def item(tensor: torch.Tensor) -> Any:
        value = read(tensor)
        return value if values.of(subclasses.plain(tensor)) is not None else _unknown(value)

    def tolist(tensor: torch.Tensor) -> Any:
        value = read_all(tensor)
        return value if values.of(subclasses.plain(tensor)) is not None else _nested(value)

    FakeTensor.item, FakeTensor.tolist = item, tolist  # type: ignore[method-assign]


def represent(module: types.ModuleType) -> None:
    """Let YAML, which looks for the very class of a number, write them."""
    for kind in (module.SafeRepresenter, module.Representer):
        kind.add_representer(UnknownFloat, kind.represent_float)
        kind.add_representer(UnknownInt, kind.represent_int)
