"""Several processes: each rank is recorded alone, with PyTorch's fake process group."""

from __future__ import annotations

import os
from typing import Any

import torch

from . import data_parallel
from .recording import Recording


def install(recording: Recording) -> None:
    """Let `init_process_group` make a group that moves no data."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    original = dist.init_process_group

    def init_process_group(
        backend: str | None = None,
        init_method: str | None = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        **kwargs: Any,
    ) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        world_size = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", 1))
        rank = rank if rank >= 0 else int(os.environ.get("RANK", 0))
        recording.approximate("collectives", f"{backend or 'nccl'}: no data is exchanged")
        original("fake", store=FakeStore(), rank=rank, world_size=world_size)

    dist.init_process_group = init_process_group
    dist.distributed_c10d.init_process_group = init_process_group
    dist.is_nccl_available = dist.distributed_c10d.is_nccl_available = lambda: True
    data_parallel.install()
    torch.cuda.nccl.version = lambda: (2, 27, 0)
