"""What a block is for: parameter, buffer, gradient, state of an optimizer, input."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .storages import parts_of_sparse

if TYPE_CHECKING:
    from .recording import Recording


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


class Roles:
    """Tells each block's role once it is known."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._names: dict[int, str] = {}
        self._told: dict[int, str] = {}
        self._trees: dict[int, tuple[weakref.ref[torch.nn.Module], int]] = {}

    def _tell(self, tensor: torch.Tensor | None, role: str, name: str | None) -> None:
        if tensor is None or tensor.device.type != "cuda":
            return
        for part in _plain(tensor):
            block = self._recording.storages.block_of(part)
            if block is not None and self._told.get(block) != role:
                if role == "input" and block in self._told:
                    return
                self._told[block] = role
                self._recording.on_role(block, role, name)

    def forward_begins(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A root module is called: its parameters and buffers have names, and its arguments are inputs."""
        if self._recording.stream is None:
            return
        # A module that is moved to the card has other parameters afterwards.
        first = id(next(root.parameters(), None))
        known = self._trees.get(id(root))
        if known is None or known[0]() is not root or known[1] != first:
            self._trees[id(root)] = weakref.ref(root), first
            for name, parameter in root.named_parameters():
                self._names[id(parameter)] = name
                self._tell(parameter, "parameter", name)
            for name, buffer in root.named_buffers():
                self._tell(buffer, "buffer", name)
        for value in (args, kwargs):
            for tensor in tensors_in(value):
                if tensor.grad_fn is None and not isinstance(tensor, torch.nn.Parameter):
                    self._tell(tensor, "input", None)

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Before a step each gradient is there."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self._names.get(id(parameter))
                self._tell(parameter, "parameter", name)
                self._tell(parameter.grad, "gradient", name)

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """After a step the optimizer's state is there."""
        for parameter, state in optimizer.state.items():
            name = self._names.get(id(parameter))
            for tensor in tensors_in(state if isinstance(state, dict) else {}):
                self._tell(tensor, "optimizer", name)


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors with storage: of what a transform (`torch.func`) wraps, a sparse tensor, a subclass (DTensor)."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    if tensor.layout == torch.sparse_coo:
        yield from parts_of_sparse(tensor)
        return
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield tensor
        return
    names, _ = flatten()
    for name in names:
        part = getattr(tensor, name)
        if isinstance(part, torch.Tensor):
            yield from _plain(part)
