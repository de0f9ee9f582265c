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
    _exchange_no_objects(dist)
    data_parallel.install()
    torch.cuda.nccl.version = lambda: (2, 27, 0)


def _exchange_no_objects(dist: Any) -> None:
    """Python's objects, whose sizes would be exchanged first: each rank has its own, and takes them for the others'."""

    def broadcast_object_list(object_list: list[Any], *args: Any, **kwargs: Any) -> None:
        pass

    def all_gather_object(object_list: list[Any], obj: Any, *args: Any, **kwargs: Any) -> None:
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj: Any, object_gather_list: list[Any] | None = None, *args: Any, **kwargs: Any) -> None:
        if object_gather_list is not None:
            all_gather_object(object_gather_list, obj)

    def scatter_object_list(
        scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
        *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        if scatter_object_input_list:
            scatter_object_output_list[0] = scatter_object_input_list[dist.get_rank()]

    for function in (broadcast_object_list, all_gather_object, gather_object, scatter_object_list):
        setattr(dist, function.__name__, function)
        setattr(dist.distributed_c10d, function.__name__, function)
