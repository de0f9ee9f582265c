"""Training steps: phases, when two steps are equal, and the end of the recording."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import optimizer as torch_optimizer

if TYPE_CHECKING:
    from .recording import Recording

#: A program whose steps never repeat (sentences of any length) is recorded for so many.
_MOST_STEPS = 12


class Steps:
    """Follows the optimizers of the program.

    A step ends where the optimizer that stepped first has stepped again, so a program with two optimizers
    or with accumulated gradients has the steps that its author would count.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.count = 0
        self.backward_calls = 0
        self.phase = "init"
        self._first: int | None = None
        self._hash = 0
        self._previous: int | None = None
        self._frees: list[tuple[int, int]] = []
        self._sizes: dict[int, int] = {}
        self._next = 0
        self._begin = 0

    def install(self) -> None:
        """Follow each step of each optimizer."""
        torch_optimizer.register_optimizer_step_pre_hook(self._begins)
        torch_optimizer.register_optimizer_step_post_hook(self._ended)

    # The signature of a step: sizes in order, and of each free the size and, if it was born in this step,
    # its place there. A block from an earlier step may have been born in another place then.

    def birth(self, block: int, size: int, stream: int, device: int) -> None:
        """A block is born."""
        self._flush_frees()
        self._sizes[block] = size
        self._next = block + 1
        self._hash = hash((self._hash, size, stream, device))

    def death(self, block: int) -> None:
        """A block dies."""
        place = block - self._begin if block >= self._begin else -1
        self._frees.append((place, self._sizes.pop(block, 0)))

    def _flush_frees(self) -> None:
        if self._frees:
            self._frees.sort()
            self._hash = hash((self._hash, *self._frees))
            self._frees = []

    # Phases.

    def _enter(self, phase: str) -> None:
        if phase != self.phase:
            self.phase = phase
            self._recording.on_phase(phase, self.count)

    def forward_begins(self) -> None:
        """A module is called that no other module calls."""
        self._enter("forward")

    def backward_begins(self) -> None:
        """The autograd engine starts."""
        self.backward_calls += 1
        self._enter("backward")

    def _begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._recording.roles.optimizer_begins(optimizer)
        self._enter("optimizer")

    def _ended(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._recording.roles.optimizer_ended(optimizer)
        if self._first is None:
            self._first = id(optimizer)
            self._recording.inform({"optimizer": type(optimizer).__name__})
        if id(optimizer) != self._first or self._recording.stream is None:
            return
        self.count += 1
        self._flush_frees()
        signature, self._hash, self._begin = self._hash, 0, self._next
        wanted = self._recording.settings.steps
        if wanted is not None:
            if self.count >= wanted:
                self._finish()
        elif signature == self._previous:
            self._finish()
        elif self.count >= _MOST_STEPS:
            self._recording.approximate("steps differ", f"no two of {self.count} steps made the same allocations")
            self._finish()
        self._previous = signature
        self._enter("data")

    def _finish(self) -> None:
        if self._recording.muted:
            return
        self._recording.say_bye("steps")
        end_process()


def end_process() -> None:
    """End this process and the workers that it started, which load its data."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    workers = multiprocessing.active_children()
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(timeout=1)
    os._exit(0)
