"""Which module of the network an allocation belongs to.

In the forward pass it is the innermost module that is being called. In the backward pass it is the module
that was being called when the forward pass made the node of the graph that now runs: PyTorch numbers these
nodes (`_sequence_nr`), so a list of numbers at which the innermost module changed is enough.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .recording import Recording

_MOST_CHANGES = 200_000


class _Thread(threading.local):
    """What is known of one thread."""

    def __init__(self) -> None:
        self.stack: list[int] = []
        self.numbers: list[int] = []
        self.modules: list[int] = []
        self.engine_depth = 0


class Modules:
    """Follows the calls of modules."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._thread = _Thread()
        self._ids: dict[int, int] = {}
        #: Weak, since a network that the program drops gives its memory back. An id is that of one module at a time.
        self._alive: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._paths: list[tuple[str, str]] = []
        self._roots: set[int] = set()
        self._roots_seen = 0
        self._launcher: tuple[list[int], list[int]] = ([], [])
        self._sequence_number = torch.autograd._get_sequence_nr
        self._node = torch._C._current_autograd_node
        self._said = 0

    def install(self, before_backward: Callable[[], None]) -> None:
        """Follow each call of a module, and each run of the autograd engine."""
        call = torch.nn.Module.__call__

        def follow(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            self._enter(module, args, kwargs)
            try:
                return call(module, *args, **kwargs)
            finally:
                self._leave()

        follow.__wrapped__ = call  # type: ignore[attr-defined]
        torch.nn.Module.__call__ = follow
        run = torch.autograd.graph._engine_run_backward

        def run_backward(*args: Any, **kwargs: Any) -> Any:
            thread = self._thread
            before_backward()
            if self._recording.storages.ignores:
                return run(*args, **kwargs)
            if thread.engine_depth == 0 and not thread.stack:
                self._launcher = (thread.numbers, thread.modules)
                self._recording.steps.backward_begins()
            thread.engine_depth += 1
            try:
                return run(*args, **kwargs)
            finally:
                thread.engine_depth -= 1

        torch.autograd.graph._engine_run_backward = run_backward
        torch.autograd._engine_run_backward = run_backward

    def _enter(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        thread = self._thread
        if not thread.stack:
            self._name_tree(module)
            self._recording.roles.forward_begins(module, args, kwargs)
            self._recording.steps.forward_begins()
        number = self._ids.get(id(module))
        if number is None:
            number = self._name(module, type(module).__name__)
        thread.stack.append(number)
        self._changed(thread, number)

    def _leave(self) -> None:
        thread = self._thread
        thread.stack.pop()
        self._changed(thread, thread.stack[-1] if thread.stack else -1)

    def _changed(self, thread: _Thread, number: int) -> None:
        if len(thread.numbers) > _MOST_CHANGES:
            del thread.numbers[: _MOST_CHANGES // 2], thread.modules[: _MOST_CHANGES // 2]
        thread.numbers.append(self._sequence_number())
        thread.modules.append(number)

    def _name_tree(self, root: torch.nn.Module) -> None:
        """Give each module below a root its path; a second root's paths begin with its class."""
        if id(root) in self._roots:
            return
        self._roots.add(id(root))
        self._roots_seen += 1
        prefix = "" if self._roots_seen == 1 else type(root).__name__
        for path, module in root.named_modules():
            if id(module) not in self._ids:
                self._name(module, ".".join(part for part in (prefix, path) if part))

    def _name(self, module: torch.nn.Module, path: str) -> int:
        number, key = len(self._paths), id(module)
        self._ids[key] = number
        self._alive[key] = weakref.ref(module, lambda dead: self._forget(key, dead))
        self._paths.append((path, type(module).__name__))
        return number

    def _forget(self, key: int, dead: weakref.ref[torch.nn.Module]) -> None:
        """Another module may have the id from now on."""
        if self._alive.get(key) is dead:
            del self._alive[key], self._ids[key]
            self._roots.discard(key)

    def current(self) -> int:
        """The number of the module that an allocation belongs to now, or -1. Writes its line if needed."""
        thread = self._thread
        if thread.stack:
            number = thread.stack[-1]
        else:
            node = self._node()
            if node is None:
                return -1
            nested = thread.engine_depth > 0 and thread.numbers
            numbers, modules = (thread.numbers, thread.modules) if nested else self._launcher
            at = bisect_right(numbers, node._sequence_nr()) - 1
            number = modules[at] if at >= 0 else -1
        if number >= self._said:
            self._say(number)
        return number

    def _say(self, number: int) -> None:
        stream = self._recording.stream
        if stream is None:
            return
        for index in range(self._said, number + 1):
            path, name = self._paths[index]
            stream.write("m", index, stream.intern(path), stream.intern(name))
        self._said = number + 1
