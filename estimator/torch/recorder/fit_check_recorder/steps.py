"""Training steps: when two of them are equal, and the end of the recording."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .endings import end_process
from .updates import Updates

if TYPE_CHECKING:
    from .recording import Recording

#: A program whose steps never repeat (sentences of any length) is recorded for so many.
_MOST_STEPS = 12


class Steps:
    """Compares the steps of the program, and ends the recording when there are enough."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.updates = Updates(self)
        self.backward_calls = 0
        self._has_updated = False
        self._hash = 0
        self._signatures: list[int] = []
        self._frees: list[tuple[int, int]] = []
        self._sizes: dict[int, int] = {}
        self._next = 0
        self._begin = 0

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

    def forward_begins(self) -> None:
        """A module is called that no other module calls."""
        self.updates.enter("forward")

    def backward_begins(self) -> None:
        """The autograd engine starts."""
        self.backward_calls += 1
        self.updates.enter("backward")

    # What is told of phases and steps.

    def has_begun(self) -> bool:
        """Whether the program has come to the card."""
        return self._recording.stream is not None

    def on_phase(self, phase: str, step: int) -> None:
        """A phase of a step begins."""
        self._recording.on_phase(phase, step)

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to update."""
        self._recording.roles.optimizer_begins(optimizer)

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has updated."""
        self._recording.roles.optimizer_ended(optimizer)
        if not self._has_updated:
            self._has_updated = True
            self._recording.inform({"optimizer": type(optimizer).__name__})

    def step_ended(self) -> None:
        """A step has ended: after enough of them the recording ends."""
        self._flush_frees()
        self._signatures.append(self._hash)
        self._hash, self._begin = 0, self._next
        wanted, made = self._recording.settings.steps, self.updates.count
        if wanted is not None:
            if made >= wanted:
                self._finish()
        elif self._repeats():
            self._finish()
        elif made >= _MOST_STEPS:
            self._recording.approximate("steps differ", f"no two of {made} steps made the same allocations")
            self._finish()

    def _repeats(self) -> bool:
        """Whether the last step was like the one before, or the last two like the two before.

        What Python collects, or a loader hands on late, may die at every second step (fastai's batches).
        """
        past = self._signatures
        return past[-1:] == past[-2:-1] or (len(past) >= 4 and past[-2:] == past[-4:-2])

    def _finish(self) -> None:
        if self._recording.muted:
            return
        self._recording.say_bye("steps")
        end_process()
