"""Optimizers that are not PyTorch's own: fastai's and those of Keras. Their updates end steps, too."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from . import moving

if TYPE_CHECKING:
    from .bootstrap import AfterImport
    from .updates import Updates


def install(imports: AfterImport, updates: Updates) -> None:
    """Wait for the packages."""
    imports.call("fastai.optimizer", lambda module: _fastai(module, updates))
    imports.call("keras.src.optimizers.base_optimizer", lambda module: _keras(module, updates))


def _around(update: Callable[..., Any], updates: Updates, seen_as: Callable[[Any], Any]) -> Callable[..., Any]:
    """An update that is told of before and after it."""

    def told(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        updates.begins(seen_as(optimizer))
        result = update(optimizer, *args, **kwargs)
        updates.ended(seen_as(optimizer))
        return result

    return told


def _fastai(module: types.ModuleType, updates: Updates) -> None:
    """It has groups and a state like PyTorch's own, and gets its parameters before they move to the card."""
    base, groups = module._BaseOptimizer, module._BaseOptimizer.param_groups
    every = base.all_params

    def follow(optimizer: Any) -> None:
        for parameters in optimizer.param_lists:
            for old, new in moving.replace_moved(parameters):
                state = getattr(optimizer, "state", {})
                if old in state:  # which of them have no weight decay is said before
                    state[new] = state.pop(old)

    def all_params(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        follow(optimizer)
        return every(optimizer, *args, **kwargs)

    def param_groups(optimizer: Any) -> Any:
        follow(optimizer)
        return groups.fget(optimizer)

    base.all_params = all_params
    base.param_groups = property(param_groups, groups.fset)
    module.Optimizer.step = _around(module.Optimizer.step, updates, lambda optimizer: optimizer)


class _Groups:
    """An optimizer of Keras as PyTorch's own would look."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [{"params": _tensors(self._optimizer()._trainable_variables)}]

    @property
    def state(self) -> dict[torch.Tensor, Any]:
        optimizer = self._optimizer()
        parameters = _tensors(optimizer._trainable_variables)
        return {parameters[0]: dict(enumerate(_tensors(optimizer.variables)))} if parameters else {}


def _tensors(variables: Any) -> list[torch.Tensor]:
    return [value for variable in variables if isinstance(value := getattr(variable, "_value", None), torch.Tensor)]


def _keras(module: types.ModuleType, updates: Updates) -> None:
    seen: weakref.WeakKeyDictionary[Any, _Groups] = weakref.WeakKeyDictionary()

    def groups(optimizer: Any) -> _Groups:
        if optimizer not in seen:
            seen[optimizer] = type(type(optimizer).__name__, (_Groups,), {})(optimizer)
        return seen[optimizer]

    base = module.BaseOptimizer
    base.apply = _around(base.apply, updates, groups)
