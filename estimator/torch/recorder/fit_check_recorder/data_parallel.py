"""DistributedDataParallel: what its C++ reducer allocates.

PyTorch's own Python class stays; the reducer below it wants events of a driver (csrc/distributed/c10d/
reducer.cpp). In its place stands one that makes the same buckets: flat copies of gradients, the first of
1 MiB and the others of 25, made anew after the first backward pass in the order in which gradients came.
With `gradient_as_bucket_view` the gradients are views of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch


def install() -> None:
    """Put the stand-ins where DistributedDataParallel looks for them."""
    import torch.distributed as dist
    from torch.distributed import utils
    from torch.nn.parallel import distributed

    dist.Reducer = Reducer
    dist.Logger = Logger
    dist._compute_bucket_assignment_by_size = assign_buckets
    dist._verify_params_across_processes = lambda *args: None
    dist._register_comm_hook = lambda *args: None
    dist._register_builtin_comm_hook = lambda *args: None
    for module in (utils, distributed):
        module._verify_param_shape_across_processes = lambda *args: None


def assign_buckets(
    tensors: Sequence[torch.Tensor],
    limits: Sequence[int],
    expect_sparse_gradient: Sequence[bool] | None = None,
    indices: Sequence[int] | None = None,
    logger: Any = None,
) -> tuple[list[list[int]], list[int]]:
    """Follow `compute_bucket_assignment_by_size`: a bucket is full once it reaches its limit."""
    names = list(indices) if indices else list(range(len(tensors)))
    result: list[tuple[list[int], int]] = []
    open_: dict[Any, tuple[list[int], int, int]] = {}
    for name, tensor in zip(names, tensors, strict=True):
        key = (tensor.dtype, tensor.device)
        members, size, place = open_.get(key, ([], 0, 0))
        members.append(name)
        size += tensor.numel() * tensor.element_size()
        if size >= limits[place]:
            result.append((members, limits[place]))
            open_[key] = ([], 0, min(place + 1, len(limits) - 1))
        else:
            open_[key] = (members, size, place)
    result += [(members, limits[place]) for members, _, place in open_.values() if members]
    if not indices:
        result.sort(key=lambda bucket: min(bucket[0]))
    return [members for members, _ in result], [limit for _, limit in result]


class Logger:
    """Logs nothing."""

    def __init__(self, reducer: Any) -> None:
        self.reducer = reducer

    def _get_ddp_logging_data(self) -> Any:
        # Asked for what the graph is like, once a training is over (`can_set_static_graph`): nothing is known of it.
        return SimpleNamespace(strs_map={}, ints_map={})

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Reducer:
    """Holds the buckets."""

    def __init__(self, parameters: Any, bucket_indices: Any, *more: Any, **named: Any) -> None:
        self._parameters = list(parameters)
        # After these: limits, process group, sparse, cap, unused, as view, names, first cap.
        self._cap, self._find_unused, self._as_view = more[3], more[4], more[5]
        self._first_cap = more[7] if len(more) > 7 else 1 << 20
        self._static = False
        self._rebuilt = False
        self._ready: list[int] = []
        self._make(bucket_indices)
        device = self._parameters[0].device
        self._used = torch.empty(len(self._parameters), dtype=torch.int32, device=device) if self._find_unused else None
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))
            for index, parameter in enumerate(self._parameters)
        ]

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None

    def _make(self, bucket_indices: Sequence[Sequence[int]]) -> None:
        self._buckets: list[torch.Tensor] = []
        self._views: dict[int, torch.Tensor] = {}
        for members in bucket_indices:
            first = self._parameters[members[0]]
            total = sum(self._parameters[index].numel() for index in members)
            bucket = torch.empty(total, dtype=first.dtype, device=first.device)
            self._buckets.append(bucket)
            offset = 0
            for index in members:
                parameter = self._parameters[index]
                self._views[index] = bucket[offset : offset + parameter.numel()].view_as(parameter)
                offset += parameter.numel()

    def _hook(self, index: int) -> Any:
        def ready(parameter: torch.Tensor) -> None:
            if not self._rebuilt:
                self._ready.append(index)
            if self._as_view:
                parameter.grad = self._views[index]

        return ready

    def _set_static_graph(self) -> None:
        self._static = True

    def _rebuild_buckets(self) -> bool:
        """Make the buckets anew, once, in the order in which gradients were ready."""
        if self._rebuilt or not self._ready or (self._find_unused and not self._static):
            return False
        self._rebuilt = True
        order = list(dict.fromkeys(self._ready))
        members, _ = assign_buckets(
            [self._parameters[index] for index in order], [self._first_cap, self._cap], None, order
        )
        self._buckets, self._views = [], {}
        self._make(members)
        return True

    def _remove_autograd_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _get_zeros_like_grad_buckets(self) -> list[Any]:
        return []

    def _get_local_used_map(self) -> Any:
        return self._used

    def _get_backward_stats(self) -> Any:
        return None
