"""What the program that started this process asks for: the card, and where the lines go."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields

VARIABLE = "FIT_CHECK_RECORDER"


@dataclass(eq=False)
class Card:
    """A described GPU. Sizes are in bytes. A process has one, which a fork for another card changes (`forks`)."""

    name: str
    capability: tuple[int, int]
    total_bytes: int
    multiprocessors: int = 82
    l2_bytes: int = 6 << 20
    shared_bytes_per_block_optin: int = 101376
    shared_bytes_per_multiprocessor: int = 102400
    threads_per_multiprocessor: int | None = None

    def become(self, other: Card) -> None:
        """Describe the GPU that another one describes."""
        for field in fields(self):
            setattr(self, field.name, getattr(other, field.name))

    @property
    def threads(self) -> int:
        """The most threads of a multiprocessor: CUDA C++ Programming Guide, "Compute Capabilities"."""
        if self.threads_per_multiprocessor:
            return self.threads_per_multiprocessor
        return {75: 1024, 86: 1536, 87: 1536, 89: 1536, 120: 1536, 121: 1536}.get(self.number, 2048)

    @property
    def number(self) -> int:
        """The compute capability as PyTorch's kernels compare it: 86 for 8.6."""
        return self.capability[0] * 10 + self.capability[1]


@dataclass(frozen=True)
class Settings:
    """The content of the environment variable `FIT_CHECK_RECORDER`."""

    card: Card
    #: How many such cards `torch.cuda.device_count()` says.
    devices: int = 1
    #: A Unix socket that takes the lines, or a file.
    socket: str | None = None
    file: str | None = None
    #: After so many optimizer steps the recording ends; None: when two steps are equal.
    steps: int | None = None
    allocator_conf: str = ""
    #: Whether the program runs on a real GPU, and is measured.
    measure: bool = False


def from_environment() -> Settings:
    """Read the settings; raises ValueError or KeyError if they are not of that form."""
    return parse(os.environ[VARIABLE])


def parse(text: str) -> Settings:
    """The settings that a text describes, in JSON."""
    raw = json.loads(text)
    device = dict(raw["device"])
    known = Card.__dataclass_fields__
    card = {name: value for name, value in device.items() if name in known and value is not None}
    card["capability"] = tuple(card["capability"])
    return Settings(
        card=Card(**card),
        devices=raw.get("devices") or 1,
        socket=raw.get("socket"),
        file=raw.get("file"),
        steps=raw.get("steps"),
        allocator_conf=raw.get("allocator_conf") or "",
        measure=bool(raw.get("measure")),
    )
