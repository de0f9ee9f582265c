"""The workspaces of cuBLAS and cuBLASLt (aten/src/ATen/cuda/CublasHandlePool.cpp)."""

from __future__ import annotations

import os
import re
import threading
from typing import Any

import torch

from .. import streams
from ..settings import Card
from ..storages import WORKSPACE, Storages
from .inside import device_of

KIB = 1024

#: Operators of ATen that multiply with cuBLAS.
GEMMS = {"mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "addbmm", "_addmm_activation", "dot",
         "vdot", "_scaled_mm", "addr", "_int_mm", "linalg_vector_dot"}  # fmt: skip


def workspace_bytes(card: Card) -> int:
    """The size of one handle's workspace (`parseChosenWorkspaceSize`)."""
    config = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")
    pairs = re.findall(r":([0-9]+):([0-9]+)", config)
    if pairs:
        return sum(int(size) * KIB * int(count) for size, count in pairs)
    # 32 MiB for Hopper and Blackwell, else :4096:2:16:8.
    if card.capability[0] in (9, 10, 12):
        return 4096 * 8 * KIB
    return 4096 * 2 * KIB + 16 * 8 * KIB


class GemmWorkspaces:
    """One workspace for each thread (which has a handle of its own), device and stream.

    cuBLASLt uses the same one (`TORCH_CUBLASLT_UNIFIED_WORKSPACE`, on by default).
    """

    def __init__(self, card: Card, storages: Storages) -> None:
        self._size = workspace_bytes(card)
        self._storages = storages
        self._taken: set[tuple[int, int, int]] = set()

    def use(self, operator: str, args: tuple[Any, ...]) -> None:
        """Take the workspace of the current handle, if this is its first use."""
        device = device_of(args)
        key = (threading.get_ident(), device, streams.current_number())
        if key in self._taken or not _on_card(args):
            return
        self._taken.add(key)
        if self._size:
            self._storages.take(self._size, operator, WORKSPACE, device)


def _on_card(args: tuple[Any, ...]) -> bool:
    return any(
        isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in args
    )
