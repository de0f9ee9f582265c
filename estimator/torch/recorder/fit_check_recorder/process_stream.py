"""The stream of one process: its first line says what the process is, its last how it ended."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

import torch

from . import STREAM_VERSION
from .settings import Settings
from .stream import LineStream

#: Packages whose version may decide what is allocated.
_PACKAGES = (
    "accelerate", "apex", "axolotl", "bitsandbytes", "deepspeed", "diffusers", "flash_attn",
    "lightning", "liger_kernel", "peft", "pytorch_lightning", "timm", "torchao", "torchvision",
    "transformers", "triton", "trl", "unsloth", "xformers",
)  # fmt: skip


class ProcessStream:
    """A stream that is opened when the process has something to say.

    One that uses no GPU, such as a worker that loads data, writes nothing.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stream: LineStream | None = None
        self.muted = False
        self._said_bye = False
        os.register_at_fork(after_in_child=self._forked)

    def open(self) -> LineStream:
        """Begin the stream, if it has not begun."""
        if self.stream is None:
            self.stream = LineStream(self.settings)
            self.stream.write("hello", _hello(self.settings))
        return self.stream

    def write(self, *line: Any) -> None:
        """Write a line, if the stream is open."""
        if not self.muted and self.stream is not None:
            self.stream.write(*line)

    def steps_made(self) -> int:
        """The steps that the program has made."""
        raise NotImplementedError

    def summary(self) -> Iterator[tuple[Any, ...]]:
        """The lines before the last one."""
        yield "i", {"packages": _packages()}

    def say_bye(self, reason: str, **more: Any) -> None:
        """Write the last line. What comes later is not written."""
        if self._said_bye or self.stream is None or self.muted:
            return
        self._said_bye = True
        for line in self.summary():
            self.stream.write(*line)
        self.stream.write("bye", {"reason": reason, "steps": self.steps_made(), **more})
        self.stream.close()
        self.muted = True

    def _forked(self) -> None:
        """In a forked child: what the parent had opened is not ours, and its blocks are not either."""
        if self.stream is not None:
            self.stream.abandon()
            self.stream = None
            self.muted = True


def _packages() -> dict[str, str]:
    """The versions of the known packages that the program has imported."""
    return {name: str(getattr(sys.modules[name], "__version__", "?")) for name in _PACKAGES if name in sys.modules}


def _rank() -> int:
    """Which of the processes of a job this is. Launchers of single machines say the rank there alone (Lightning's)."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0)))


def _hello(settings: Settings) -> dict[str, Any]:
    return {
        "version": STREAM_VERSION,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "argv": sys.argv,
        "pid": os.getpid(),
        "rank": _rank(),
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
