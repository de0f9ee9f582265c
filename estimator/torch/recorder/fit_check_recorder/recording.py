"""One process's recording: what the other files tell, put together and written as lines."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

import torch

from . import STREAM_VERSION, script
from .modules import Modules
from .roles import Roles
from .settings import Settings
from .steps import Steps
from .storages import Storages
from .stream import LineStream

#: Packages whose version may decide what is allocated.
_PACKAGES = (
    "accelerate", "apex", "axolotl", "bitsandbytes", "deepspeed", "diffusers", "flash_attn",
    "lightning", "liger_kernel", "peft", "pytorch_lightning", "timm", "torchao", "torchvision",
    "transformers", "triton", "trl", "unsloth", "xformers",
)  # fmt: skip


class Recording:
    """What is known of this process, and the stream that says it.

    The stream is opened when the program first allocates on a card: a process that never does, such as a
    worker that loads data, writes nothing.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stream: LineStream | None = None
        self.muted = False
        self.storages = Storages(self)
        self.modules = Modules(self)
        self.roles = Roles(self)
        self.steps = Steps(self)
        self.current_stream = lambda: 0
        self._approximations: dict[tuple[str, str], list[int]] = {}
        self._operators: dict[str, int] = {}
        self._said_bye = False
        os.register_at_fork(after_in_child=self._forked)

    # What the other files tell.

    def on_birth(self, block: int, size: int, operator: str, kind: int, device: int) -> None:
        """A block is born."""
        if self.muted:
            return
        out = self.stream or self.open()
        number = self._operators.get(operator)
        if number is None:
            number = self._operators[operator] = out.intern(operator)
        stream = self.current_stream()
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
        if not self.muted and self.stream is not None:
            self.stream.write("p", phase, step)

    def on_empty_cache(self) -> None:
        """`torch.cuda.empty_cache()`."""
        if not self.muted and self.stream is not None:
            self.stream.write("e")

    def on_reset_peak(self, device: int) -> None:
        """`torch.cuda.reset_peak_memory_stats()`."""
        self.storages.reset_peak(device)
        if not self.muted and self.stream is not None:
            self.stream.write("z")

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
        if not self.muted and self.stream is not None:
            self.stream.write("i", facts)

    # How a stream begins and ends.

    def open(self) -> LineStream:
        """Begin the stream, if it has not begun."""
        if self.stream is None:
            self.stream = LineStream(self.settings)
            self.stream.write("hello", _hello(self.settings))
            self.stream.write("p", "init", 0)
        return self.stream

    def _forked(self) -> None:
        """In a forked child: what the parent had opened is not ours, and its blocks are not either."""
        if self.stream is not None:
            self.stream.abandon()
            self.stream = None
            self.muted = True

    def say_bye(self, reason: str, **more: Any) -> None:
        """Write the last line. What comes later is not written."""
        if self._said_bye or self.stream is None or self.muted:
            return
        self._said_bye = True
        for (kind, text), (size, count) in self._approximations.items():
            self.stream.write("x", kind, text, size, count)
        self.stream.write("i", {"packages": _packages(), "backward_calls": self.steps.backward_calls})
        self.stream.write("bye", {"reason": reason, "steps": self.steps.count, **more})
        self.stream.close()
        self.muted = True


def _packages() -> dict[str, str]:
    """The versions of the known packages that the program has imported."""
    return {name: str(getattr(sys.modules[name], "__version__", "?")) for name in _PACKAGES if name in sys.modules}


def _hello(settings: Settings) -> dict[str, Any]:
    return {
        "version": STREAM_VERSION,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "argv": sys.argv,
        "pid": os.getpid(),
        "rank": int(os.environ.get("RANK", 0)),
        "world_size": int(os.environ.get("WORLD_SIZE", 1)),
        "packages": _packages(),
        "settings": {
            "allocator_conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
            or os.environ.get("PYTORCH_ALLOC_CONF")
            or settings.allocator_conf,
            "tf32": torch.backends.cuda.matmul.allow_tf32,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        },
    }
