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

#: The version of PyTorch: major, minor.
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])

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


def lt_workspace_bytes() -> int:
    """The size of a handle's workspace for cuBLASLt, if it has one of its own.

    From PyTorch 2.12 on it has not (`TORCH_CUBLASLT_UNIFIED_WORKSPACE`, on by default); 2.11 took 1 MiB.
    """
    unified = os.environ.get("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "1" if TORCH >= (2, 12) else "0")
    if unified == "1":
        return 0
    return int(os.environ.get("CUBLASLT_WORKSPACE_SIZE", "1024")) * KIB


class GemmWorkspaces:
    """Workspaces of each thread (which has a handle of its own), device and stream."""

    def __init__(self, card: Card, storages: Storages) -> None:
        self._card = card
        self._lt_size = lt_workspace_bytes()
        self._storages = storages
        self._taken: set[tuple[int, int, int, bool]] = set()

    def use(self, operator: str, args: tuple[Any, ...]) -> None:
        """Take the workspaces of the current handle, if this is their first use."""
        device = device_of(args)
        key = (threading.get_ident(), device, streams.current_number(device), False)
        if key not in self._taken and _on_card(args):
            self._taken.add(key)
            size = workspace_bytes(self._card)
            if size:
                self._storages.take(size, operator, WORKSPACE, device)
        if self._lt_size and _is_fused(operator, args):
            key = (*key[:3], True)
            if key not in self._taken:
                self._taken.add(key)
                self._storages.take(self._lt_size, operator, WORKSPACE, device)


def _is_fused(operator: str, args: tuple[Any, ...]) -> bool:
    """Whether cuBLASLt adds the bias (`isInputCompliesAddmmCudaLt` in native/cuda/Blas.cpp)."""
    if operator != "aten::addmm":
        return False
    bias, second = args[0], args[2]
    return bias.dim() == 1 and bias.is_contiguous() and min(second.shape) > 1


def _on_card(args: tuple[Any, ...]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in args)
