"""Convolutions: copies that PyTorch makes, and the workspace that cuDNN takes.

cuDNN's kernels for tensor cores read the channels of a pixel one after the other (NHWC). What lies in PyTorch's
usual order (NCHW) is copied into the workspace first, and the result goes through it too (NVIDIA, "Convolutional
Layers User's Guide", section "Tensor Layouts In Memory: NCHW vs NHWC"). So the workspace is as large as input, output
and weight together, and for the gradient of a weight there are partial sums besides. Which kernel cuDNN takes, it
alone decides. When it copies, and how many partial sums there are, was read off five jobs on an NVIDIA H200; how far
off other jobs are stands in docs/pytorch.md.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import torch

from ..settings import Card
from .inside import Inside, Rule, size_of
from .reductions import bias_gradient

_WORKSPACE = "cuDNN's workspace of convolutions"

#: The part of a result that one block of threads computes, in rows and columns.
_TILE = 128
#: What a workspace has beside the copies.
_REST = 16


def _format(source: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """Follow `cudnn_conv_suggest_memory_format` in native/ConvUtils.h."""
    if source.dim() == 4:
        last = torch.channels_last
    elif source.dim() == 5:
        last = torch.channels_last_3d
    else:
        return torch.contiguous_format
    for tensor in (source, weight):
        if tensor.is_contiguous(memory_format=last) and not tensor.is_contiguous():
            return last
    return torch.contiguous_format


def _copies(tensors: Sequence[torch.Tensor], layout: torch.memory_format) -> list[int]:
    """cuDNN gets each tensor in one layout."""
    return [size_of(t) for t in tensors if not t.is_contiguous(memory_format=layout)]


class _Convolution:
    """One convolution: which copies cuDNN's kernels make of its tensors."""

    def __init__(
        self, card: Card, source: torch.Tensor, weight: torch.Tensor, output: torch.Tensor, stride: Sequence[int]
    ) -> None:
        self.card = card
        self.source, self.weight, self.output = source, weight, output
        self.kernel = math.prod(weight.shape[2:])
        #: Whether it is one product of matrices for each sample.
        self.is_product = self.kernel == 1 and all(step == 1 for step in stride)
        #: The bytes of one channel of a sample: kernels read several values at once, if these bytes divide by so many.
        self.row = math.prod(source.shape[2:]) * source.element_size()
        self.both = size_of(source) + size_of(output)

    def is_modelled(self) -> bool:
        """Whether cuDNN has tensor cores for it; with TF32 they also take float32."""
        if self.source.dim() > 4:
            return False
        if self.source.dtype == torch.float32:
            return self.card.capability[0] >= 8 and torch.backends.cudnn.conv.fp32_precision == "tf32"
        return self.source.dtype in (torch.float16, torch.bfloat16) and self.card.capability[0] >= 7

    def needs_no_copy(self) -> bool:
        """Whether the tensors are in the order that the kernels read, or kernels of another kind are taken."""
        depthwise = self.weight.shape[1] == 1 and self.source.shape[1] > 1
        pixel = self.row == self.source.element_size()
        # A pixel has less than the 16 bytes that are read at once. Only ResNet's 7 x 7 was seen to copy it.
        few = self.weight.shape[1] * self.source.element_size() < 16 and self.kernel != 49
        last = _format(self.source, self.weight) != torch.contiguous_format
        return depthwise or pixel or few or last

    def result(self) -> list[int]:
        """The workspace for the output or for the gradient of the input."""
        if self.needs_no_copy() or (self.is_product and self.row % 8 == 0):
            return []
        return [self.both + self._weight_copy() + _REST]

    def weight_gradient(self) -> list[int]:
        """The workspace for the gradient of the weight."""
        if self.needs_no_copy():
            return []
        if self.is_product and self.row % 16 == 0:
            # Computed for each sample alone, in float32, and then added up, unless copies are smaller.
            return [min(self.source.shape[0] * self.weight.numel() * 4, self.both + _REST)]
        return [self.both + self._weight_copy() + self._partial_sums() + _REST]

    def _weight_copy(self) -> int:
        """With a kernel of 1 x 1 both orders are the same."""
        return size_of(self.weight) if self.kernel > 1 else 0

    def _partial_sums(self) -> int:
        """Each multiprocessor adds up a part of the samples for one tile of the weight, in float32.

        If there are more tiles than multiprocessors, Hopper's kernels still share those that are left over.
        """
        rows, columns = self.weight.shape[0], self.weight.shape[1] * self.kernel
        tiles = max(1, math.ceil(rows / _TILE) * math.ceil(columns / _TILE))
        parts = self.card.multiprocessors // tiles
        if self.weight.element_size() == 2:
            parts //= 2
        elif parts == 0 and self.card.capability[0] == 9:
            return self.card.multiprocessors * _TILE * _TILE * 4
        return parts * 4 * self.weight.numel() if parts > 2 else 0


def _tried(card: Card, operator: str, source: torch.Tensor, weight: torch.Tensor, settings: Sequence[Any]) -> Hashable:
    """Follow `BenchmarkCache` in native/cudnn/Conv_v8.cpp: what makes a convolution another one."""
    if not torch.backends.cudnn.benchmark:
        return None
    backend = torch._C._select_conv_backend(source, weight, None, *settings, None)
    # Whether cuDNN takes bfloat16 is asked of the card: see `memory_formats.py`.
    half = source.dtype == torch.bfloat16 and card.capability[0] >= 8
    names = ("Cudnn", "CudnnTranspose", *(("Slow2d", "SlowDilated2d", "CudaDepthwise2d") if half else ()))
    if backend.name not in names:
        return None
    tensors = ((t.dtype, tuple(t.shape), t.is_contiguous()) for t in (source, weight))
    return (operator, *tensors, *(tuple(s) if isinstance(s, (list, tuple)) else s for s in settings))


def _convolution(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `cudnn_convolution` in native/cudnn/ConvShared.cpp."""
    source, weight = args[:2]
    copies = _copies((source, weight), _format(source, weight))
    convolution = _Convolution(card, source, weight, result, args[3])
    tried = _tried(card, "forward", source, weight, args[3:9])
    if not convolution.is_modelled():
        return Inside(before=copies, unknown=_WORKSPACE, tried=tried)
    return Inside(before=copies, each={0: convolution.result()}, rule=_WORKSPACE, tried=tried)


def _convolution_backward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `convolution_backward` in native/Convolution.cpp: the gradient of the bias is a sum."""
    grad, source, weight = args[:3]
    copies = _copies((grad, source, weight), _format(source, weight))
    bias = bias_gradient(card, grad) if args[10][2] else ()
    convolution = _Convolution(card, source, weight, grad, args[4])
    tried = _tried(card, "backward", source, weight, args[4:10])
    if not convolution.is_modelled():
        return Inside(before=copies, after=bias, unknown=_WORKSPACE, tried=tried)
    each = {0: convolution.result(), 1: convolution.weight_gradient()}
    return Inside(before=copies, each=each, after=bias, rule=_WORKSPACE, tried=tried)


RULES: dict[str, Rule] = {
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
}
