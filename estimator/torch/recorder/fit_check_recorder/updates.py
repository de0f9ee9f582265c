"""What a training step is: where its phases begin, and which update of which optimizer ends it."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.optim import optimizer as torch_optimizer


class Observer(Protocol):
    """Who is told of phases and steps."""

    def has_begun(self) -> bool:
        """Whether the program has come to the GPU: no update before counts."""

    def on_phase(self, phase: str, step: int) -> None:
        """A phase begins, after so many steps."""

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to update."""

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has updated."""

    def step_ended(self) -> None:
        """A step has ended, and no phase has begun since."""


class Updates:
    """Follows the optimizers of the program.

    A step ends where the optimizer that stepped first has stepped again, so a program with two optimizers
    or with accumulated gradients has the steps that its author would count.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.count = 0
        self._phase = "init"
        self._first: int | None = None

    def install(self) -> None:
        """Follow each step of each optimizer."""
        torch_optimizer.register_optimizer_step_pre_hook(self.begins)
        torch_optimizer.register_optimizer_step_post_hook(self.ended)

    def enter(self, phase: str) -> None:
        """A phase begins, unless it is the one that there is."""
        if phase != self._phase:
            self._phase = phase
            self._observer.on_phase(phase, self.count)

    def begins(self, optimizer: Any, *hook_arguments: Any) -> None:
        """An optimizer is about to update."""
        self._observer.optimizer_begins(optimizer)
        self.enter("optimizer")

    def ended(self, optimizer: Any, *hook_arguments: Any) -> None:
        """An optimizer has updated."""
        self._observer.optimizer_ended(optimizer)
        if self._first is None:
            self._first = id(optimizer)
        if not self._observer.has_begun():
            return
        if id(optimizer) == self._first:
            self.count += 1
            self._observer.step_ended()
        self.enter("data")
