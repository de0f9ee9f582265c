"""Measures a program on a real GPU: PyTorch's own counters at the end of each phase.

The program has the PyTorch and the GPU that it always has. Only the function that starts the autograd engine is
wrapped, since a forward pass ends where it is called. The counters of the most memory begin anew with each phase.
"""

from __future__ import annotations

from typing import Any

import torch

from . import endings, other_optimizers, settings
from .bootstrap import AfterImport
from .process_stream import ProcessStream
from .updates import Updates

#: The phase that ends where another one begins. What comes before a backward pass is one phase: the batch too.
_ENDED = {"backward": "forward", "optimizer": "backward", "data": "optimizer"}
_COUNTERS = (
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "reserved_bytes.all.current",
    "reserved_bytes.all.peak",
)


def install(imports: AfterImport) -> None:
    """Measure this process, once it uses the GPU."""
    measuring = Measuring(settings.from_environment())
    measuring.updates.install()
    other_optimizers.install(imports, measuring.updates)
    measuring.follow_backward()
    endings.follow(measuring)


class Measuring(ProcessStream):
    """One process's counters, phase by phase."""

    def __init__(self, settings: settings.Settings) -> None:
        super().__init__(settings)
        self.updates = Updates(self)
        self._step = 0

    def follow_backward(self) -> None:
        """Follow each run of the autograd engine."""
        run = torch.autograd.graph._engine_run_backward

        def run_backward(*args: Any, **kwargs: Any) -> Any:
            self.updates.enter("backward")
            return run(*args, **kwargs)

        torch.autograd.graph._engine_run_backward = run_backward
        torch.autograd._engine_run_backward = run_backward

    def _write_counters(self, phase: str) -> None:
        """Write the counters at the end of a phase."""
        if self.muted or not torch.cuda.is_initialized():
            return
        counted = torch.cuda.memory_stats()
        torch.cuda.reset_peak_memory_stats()
        self.open().write("c", phase, self._step, *(counted.get(name, 0) for name in _COUNTERS))

    # What is told of phases and steps.

    def has_begun(self) -> bool:
        """Whether the program uses the GPU."""
        return torch.cuda.is_initialized()

    def on_phase(self, phase: str, step: int) -> None:
        """A phase begins, so another one has ended."""
        self._write_counters(_ENDED[phase])
        self._step = step

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Nothing is told that its phase does not tell."""

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Nothing is told that the next phase does not tell."""

    def step_ended(self) -> None:
        """A step has ended: after the last one that is wanted the program ends."""
        wanted = self.settings.steps
        if not self.muted and wanted is not None and self.updates.count >= wanted:
            self._write_counters("optimizer")
            self.say_bye("steps")
            endings.end_process()

    # How the stream ends.

    def steps_made(self) -> int:
        """The steps that the program has made."""
        return self.updates.count

    def say_bye(self, reason: str, **more: Any) -> None:
        """Write the last line, also of a program that used the GPU and came to the end of no phase."""
        if not self.muted and torch.cuda.is_initialized():
            self.open()
        super().say_bye(reason, **more)
