"""SyncBatchNorm: the form of what its operators return, which exist on a card alone (native/cuda/Normalization.cu)."""

from __future__ import annotations

import torch

#: Kept for as long as the process lives: what it registers goes with it.
_library = torch.library.Library("aten", "IMPL")


def install() -> None:
    """Say of each operator what it returns."""
    for function in (
        batch_norm_stats, batch_norm_gather_stats_with_counts, batch_norm_elemt,
        batch_norm_backward_reduce, batch_norm_backward_elemt,
    ):  # fmt: skip
        _library.impl(function.__name__, function, "Meta")


def _statistics(like: torch.Tensor, channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A mean and a deviation of each channel. Half types are summed in float32."""
    dtype = torch.float32 if like.dtype in (torch.half, torch.bfloat16) else like.dtype
    return like.new_empty(channels, dtype=dtype), like.new_empty(channels, dtype=dtype)


def batch_norm_stats(source: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Statistics of this card's samples."""
    return _statistics(source, source.size(1))


def batch_norm_gather_stats_with_counts(
    source: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor, running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None, momentum: float, eps: float, counts: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Statistics of the samples of all cards."""
    return _statistics(mean, mean.size(1))


def batch_norm_elemt(
    source: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, mean: torch.Tensor,
    deviation: torch.Tensor, eps: float,
) -> torch.Tensor:  # fmt: skip
    """The normalised samples."""
    return torch.empty_like(source)


def batch_norm_backward_reduce(
    gradient: torch.Tensor, source: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor,
    weight: torch.Tensor | None, source_wanted: bool, weight_wanted: bool, bias_wanted: bool,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
    """Sums over this card's samples, and the gradients of weight and bias."""
    sums = torch.empty_like(mean) if source_wanted else None, torch.empty_like(mean) if source_wanted else None
    scale = mean if weight is None else weight
    channels = source.size(1)
    return (
        *sums,
        scale.new_empty(channels) if weight_wanted else None,
        scale.new_empty(channels) if bias_wanted else None,
    )


def batch_norm_backward_elemt(
    gradient: torch.Tensor, source: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor,
    weight: torch.Tensor | None, sum_gradient: torch.Tensor, sum_product: torch.Tensor, counts: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """The gradient of the samples."""
    return torch.empty_like(source)
