"""`module.cuda()` and `module.to(...)`: a parameter becomes another one, since a real tensor cannot turn fake.

On a real card a parameter keeps its identity when its module moves. Here the new parameter replaces the old
one everywhere in the network (tied weights stay tied), and in optimizers that were made before the move.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, MutableSequence
from typing import Any

import torch

_SUCCESSOR = "_fit_successor"


class _Move(threading.local):
    """The parameters that the outermost call has moved so far, old to new."""

    def __init__(self) -> None:
        self.depth = 0
        self.moved: dict[int, tuple[torch.Tensor, torch.nn.Parameter]] = {}


_move = _Move()
#: All optimizers that there are: a scaler looks through the parameters of one before it steps first.
_optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def install() -> None:
    """Replace `Module._apply`, and follow moved parameters in optimizers."""
    original = torch.nn.Module._apply

    def apply(
        module: torch.nn.Module, function: Callable[[torch.Tensor], torch.Tensor],
        recurse: bool = True,
    ) -> torch.nn.Module:  # fmt: skip
        _move.depth += 1
        try:
            if recurse:
                for child in module.children():
                    child._apply(function)
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    module._parameters[name] = _moved(parameter, function)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = function(buffer)
        finally:
            _move.depth -= 1
            if _move.depth == 0:
                if any(new is not old for old, new in _move.moved.values()):
                    for optimizer in list(_optimizers):
                        _follow(optimizer)
                _move.moved = {}
        return module

    apply.__wrapped__ = original  # type: ignore[attr-defined]
    torch.nn.Module._apply = apply
    original_add = torch.optim.Optimizer.add_param_group

    def add_param_group(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        original_add(optimizer, *args, **kwargs)
        _optimizers.add(optimizer)
        # What it was given may have moved before.
        _follow(optimizer)

    torch.optim.Optimizer.add_param_group = add_param_group


def _moved(parameter: torch.nn.Parameter, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.nn.Parameter:
    known = _move.moved.get(id(parameter))
    if known is not None:
        return known[1]
    with torch.no_grad():
        data = function(parameter)
        if data is parameter:
            result = parameter
        elif type(data) is type(parameter) and getattr(data, "_is_param", False):
            result = data  # a subclass that moved itself (bitsandbytes' Params4bit)
        elif isinstance(data, torch.nn.Parameter):
            result = data
        else:
            result = torch.nn.Parameter(data, parameter.requires_grad)
        if result is not parameter:
            for name, value in vars(parameter).items():
                if name not in vars(result) and not name.startswith("_fit_"):
                    try:
                        setattr(result, name, value)
                    except AttributeError:
                        pass
            setattr(parameter, _SUCCESSOR, result)
            if parameter.grad is not None:
                result.grad = function(parameter.grad)
    _move.moved[id(parameter)] = (parameter, result)
    return result


def _follow(optimizer: torch.optim.Optimizer) -> None:
    """Put the parameters that moved into an optimizer in place of those that it was made with."""
    for group in optimizer.param_groups:
        replace_moved(group["params"])


def replace_moved(parameters: MutableSequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Replace those in a list that moved, and return each with what it is now."""
    replaced = []
    for index, parameter in enumerate(parameters):
        now, successor = parameter, getattr(parameter, _SUCCESSOR, None)
        while successor is not None:
            now, successor = successor, getattr(successor, _SUCCESSOR, None)
        if now is not parameter:
            parameters[index] = now
            replaced.append((parameter, now))
    return replaced
