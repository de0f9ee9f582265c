"""One process's recording: what the other files tell, put together and written as lines."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from . import script
from .modules import Modules
from .process_stream import ProcessStream
from .roles import Roles
from .settings import Settings
from .steps import Steps
from .storages import Storages
from .stream import LineStream

_TRIALS = "kernels are tried in memory that is free, in the first step: the GPU shows more for that moment"


class Recording(ProcessStream):
    """What is known of this process, and the stream that says it: opened when the program first allocates on a card."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.storages = Storages(self)
        self.modules = Modules(self)
        self.roles = Roles(self)
        self.steps = Steps(self)
        self.current_stream = lambda device: 0
        self._approximations: dict[tuple[str, str], list[int]] = {}
        self._operators: dict[str, int] = {}
        self._tried: set[Hashable] = set()

    # What the other files tell.

    def on_birth(self, block: int, size: int, operator: str, kind: int, device: int) -> None:
        """A block is born."""
        if self.muted:
            return
        out = self.stream or self.open()
        number = self._operators.get(operator)
        if number is None:
            number = self._operators[operator] = out.intern(operator)
        stream = self.current_stream(device)
        self.steps.birth(block, size, stream, device)
        out.write_text(f'["a",{block},{size},{number},{self.modules.current()},{stream},{kind},{device}]\n')

    def on_death(self, block: int) -> None:
        """A block dies."""
        if self.muted or self.stream is None:
            return
        self.steps.death(block)
        self.stream.free(block)

    def on_role(self, block: int, role: str, name: str | None) -> None:
        """What a block is for becomes known."""
        if not self.muted and self.stream is not None:
            self.stream.write("r", block, role, -1 if name is None else self.stream.intern(name))

    def on_phase(self, phase: str, step: int) -> None:
        """A phase of a step begins."""
        self.write("p", phase, step)

    def on_empty_cache(self) -> None:
        """`torch.cuda.empty_cache()`."""
        self.write("e")

    def on_trials(self, convolution: Hashable) -> None:
        """With `cudnn.benchmark` cuDNN tries kernels when it meets a convolution first; PyTorch then empties its cache.

        So does `run_single_conv` in native/cudnn/Conv_v8.cpp. Kernels are tried in a workspace of a size that cuDNN
        alone knows, or in less if the card has not so much memory left.
        """
        if convolution not in self._tried:
            self._tried.add(convolution)
            self.on_empty_cache()
            self.approximate("cudnn.benchmark", _TRIALS)

    def on_reset_peak(self, device: int) -> None:
        """`torch.cuda.reset_peak_memory_stats()`."""
        self.storages.reset_peak(device)
        self.write("z")

    def approximate(self, kind: str, text: str, size: int = 0) -> None:
        """Something of this program was approximated. Each is written once, at the end, with its count."""
        entry = self._approximations.get((kind, text))
        if entry is None:
            entry = self._approximations[(kind, text)] = [0, 0]
        entry[0] = max(entry[0], size)
        entry[1] += 1

    def approximate_here(self, kind: str, text: str, size: int = 0) -> None:
        """As `approximate`, with the line of the person's script that is running."""
        line = script.running_line()
        self.approximate(kind, f"{text} at {line}" if line else text, size)

    def inform(self, facts: dict[str, Any]) -> None:
        """Something that the answer may show."""
        self.write("i", facts)

    # How a stream begins and ends.

    def open(self) -> LineStream:
        """Begin the stream, if it has not begun."""
        if self.stream is None:
            super().open().write("p", "init", 0)
        return super().open()

    def steps_made(self) -> int:
        """The steps that the program has made."""
        return self.steps.updates.count

    def summary(self) -> Iterator[tuple[Any, ...]]:
        """What was approximated, and what is known of the program at its end."""
        for (kind, text), (size, count) in self._approximations.items():
            yield "x", kind, text, size, count
        yield "i", {"backward_calls": self.steps.backward_calls}
        yield from super().summary()
