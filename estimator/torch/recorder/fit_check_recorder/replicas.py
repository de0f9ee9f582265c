"""DataParallel: what its C++ does with several cards (csrc/cuda/comm.cpp), for which it wants a driver and NCCL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import _utils as utils


def install() -> None:
    """Put the functions where `torch.nn.parallel.comm` looks for them."""
    torch._C._scatter = scatter
    torch._C._broadcast = broadcast
    torch._C._broadcast_coalesced = broadcast_coalesced
    # Sums the inputs into an output that is there already.
    torch.cuda.nccl.reduce = lambda inputs, output=None, root=0, *more, **named: None


def scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[Any] | None = None,
) -> list[torch.Tensor]:
    """A part of the tensor on each card, copied on the card's own stream."""
    chunks = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    parts = []
    for number, chunk in enumerate(chunks):
        with torch.cuda.stream(streams[number] if streams else None):
            parts.append(chunk.to(torch.device("cuda", devices[number]), non_blocking=True))
    return parts


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    """The tensor on each card. The first is itself, if it is there."""
    first = torch.device("cuda", devices[0])
    copies = [torch.empty_like(tensor, device=torch.device("cuda", device)).copy_(tensor) for device in devices[1:]]
    return [tensor if tensor.device == first else tensor.to(first), *copies]


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    """The tensors on each card: those of the others are views of flat buffers of this size."""
    replicas: list[list[torch.Tensor]] = [[] for _ in devices[1:]]
    for chunk in utils._take_tensors(tensors, buffer_size):
        copies = broadcast(utils._flatten_dense_tensors(chunk), devices)
        for replica, flat in zip(replicas, copies[1:], strict=True):
            replica += utils._unflatten_dense_tensors(flat, chunk)
    return [list(tensors), *(list(utils._reorder_tensors_as(replica, tensors)) for replica in replicas)]
