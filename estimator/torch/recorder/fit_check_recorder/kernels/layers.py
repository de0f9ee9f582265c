"""Convolutions and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..settings import Card
from .inside import Inside, Rule, size_of
from .reductions import bias_gradient

_WORKSPACE = "cuDNN's workspace of convolutions"


def _dropout(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """Follow `dropout_cuda` in native/cuda/Dropout.cu, which makes the mask first."""
    return Inside(order=(1, 0))


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


def _convolution(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `cudnn_convolution` in native/cudnn/ConvShared.cpp."""
    copies = _copies(args[:2], _format(args[0], args[1]))
    return Inside(before=copies, unknown=_WORKSPACE)


def _convolution_backward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `convolution_backward` in native/Convolution.cpp: the gradient of the bias is a sum."""
    grad, source, weight = args[:3]
    copies = _copies((grad, source, weight), _format(source, weight))
    return Inside(before=copies, after=bias_gradient(card, grad) if args[10][2] else (), unknown=_WORKSPACE)


RULES: dict[str, Rule] = {
    "aten::native_dropout": _dropout,
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
}
