"""Reductions, norms and scans: what they need beyond their result."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..settings import Card
from .inside import Inside, Rule, size_of
from .reduce import Reduction, buffers, dimensions


def _accumulator(dtype: torch.dtype) -> int:
    """The size of `acc_type`."""
    return 8 if dtype in (torch.float64, torch.int64, torch.bool) else 4


def _pair(dtype: torch.dtype) -> int:
    """A value and its index."""
    return 16


def _welford(dtype: torch.dtype) -> int:
    """`WelfordData`: mean, sum of squares, and two counts."""
    return 32 if dtype == torch.float64 else 16


def _value(dtype: torch.dtype) -> int:
    """The value itself."""
    return dtype.itemsize


def reduction(accumulator: Callable[[torch.dtype], int], position: int | None, only_full: bool = False) -> Rule:
    """The rule of an operator whose argument at `position` names the dimensions."""

    def rule(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
        source = args[0]
        over = kwargs.get("dim")
        if position is not None and len(args) > position and not isinstance(args[position], bool):
            over = args[position]
        sizes = buffers(card, Reduction(source, dimensions(source, over), accumulator(source.dtype)))
        return Inside(after=sizes) if sizes else None

    return rule


def bias_gradient(card: Card, grad: torch.Tensor) -> list[int]:
    """The buffers of the sum over all dimensions but the channels."""
    over = frozenset(range(grad.dim())) - {1}
    return buffers(card, Reduction(grad, over, _accumulator(grad.dtype)))


def _layer_norm(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `layer_norm_cuda`, which reads a contiguous copy."""
    return None if args[0].is_contiguous() else Inside(before=[size_of(args[0])])


def _layer_norm_backward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """Follow `layer_norm_backward_cuda` and `LaunchGammaBetaBackwardCUDAKernel` in layer_norm_kernel.cu.

    With many rows of few columns it adds up blocks of rows first.
    """
    source, shape, mask = args[1], args[2], args[-1]
    copies = [size_of(tensor) for tensor in args[:2] if not tensor.is_contiguous()]
    columns = math.prod(shape)
    rows = source.numel() // columns if columns else 0
    if rows <= 64 * 1024 or columns // 32 >= card.multiprocessors // 2:
        return Inside(after=copies)
    blocks_x = (columns + 31) // 32
    blocks_y = min(64 * 1024 // 2 // blocks_x, (rows + 31) // 32)
    block = blocks_y * columns * source.element_size()
    return Inside(after=copies + [block for wanted in mask[1:] if wanted])


def _group_norm(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """Follow `GroupNormKernelImplInternal` in native/cuda/group_norm_kernel.cu: a scale and a shift of each row."""
    samples, channels = args[3], args[4]
    return Inside(after=[samples * channels * _accumulator(args[0].dtype)] * 2)


def _group_norm_backward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """Follow `GroupNormBackwardKernelImplInternal`: two sums of each row, and three factors."""
    samples, channels, groups = args[5], args[6], args[8]
    width = _accumulator(args[1].dtype)
    rows, groups_bytes = samples * channels * width, samples * groups * width
    return Inside(after=[rows, rows, rows, groups_bytes, groups_bytes])


def _mean_loss(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `mse_loss_out` in native/BinaryOps.cpp and Loss.cpp: the losses before their mean."""
    reduction_kind = args[2] if len(args) > 2 else kwargs.get("reduction", 1)
    return None if reduction_kind == 0 else Inside(before=[size_of(args[0])])


def _foreach_norm(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `foreach_tensor_norm_cuda` in native/cuda/ForeachReduceOp.cu: a partial norm for each chunk."""
    tensors = args[0]
    if not tensors:
        return None
    largest = max(tensor.numel() for tensor in tensors)
    chunks = (largest + 65536 - 1) // 65536  # kChunkSize
    width = 8 if tensors[0].dtype == torch.float64 else 4
    return Inside(before=[len(tensors) * chunks * width])


#: The temporary storage of a scan by cub for up to some thousand elements, as an H200 shows it.
SCAN_BYTES = 1279


def _scan(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `launch_cumsum_cuda_kernel` in native/cuda/ScanKernels.cpp: a copy in the result's type.

    A tensor with one row is scanned by cub.
    """
    source = args[0]
    copy = [size_of(result)] if source.dtype != result.dtype else []
    one_row = source.dim() == 0 or source.numel() == source.shape[args[1]]
    return Inside(after=copy + ([SCAN_BYTES] if one_row and source.numel() > 1 else []))


RULES: dict[str, Rule] = {
    "aten::sum": reduction(_accumulator, 1),
    "aten::mean": reduction(_accumulator, 1),
    "aten::prod": reduction(_accumulator, 1),
    "aten::linalg_vector_norm": reduction(_accumulator, 2),
    "aten::norm": reduction(_accumulator, 2),
    "aten::amax": reduction(_value, 1),
    "aten::amin": reduction(_value, 1),
    "aten::all": reduction(_value, 1),
    "aten::any": reduction(_value, 1),
    "aten::max": reduction(_pair, 1),
    "aten::min": reduction(_pair, 1),
    "aten::argmax": reduction(_pair, 1),
    "aten::argmin": reduction(_pair, 1),
    "aten::var": reduction(_welford, 1),
    "aten::std": reduction(_welford, 1),
    "aten::var_mean": reduction(_welford, 1),
    "aten::std_mean": reduction(_welford, 1),
    "aten::native_group_norm": _group_norm,
    "aten::native_group_norm_backward": _group_norm_backward,
    "aten::mse_loss": _mean_loss,
    "aten::smooth_l1_loss": _mean_loss,
    "aten::huber_loss": _mean_loss,
    "aten::native_layer_norm": _layer_norm,
    "aten::native_layer_norm_backward": _layer_norm_backward,
    "aten::_foreach_norm": _foreach_norm,
    "aten::cumsum": _scan,
    "aten::cumprod": _scan,
}
