"""The order of a convolution's output in bfloat16.

Whether cuDNN takes bfloat16 is asked of the card (`supportsBFloat16ConvolutionWithCuDNNv8`), and without one PyTorch
says no. The fake output would then lie in the usual order, although its input is in channels-last.
"""

from __future__ import annotations

from typing import Any

import torch

from .settings import Card


def install(card: Card) -> None:
    """Have cuDNN decide about bfloat16 on cards of Ampere and later."""
    original = torch._C._conv_determine_backend_memory_format
    backends = torch._C._ConvBackend
    without_cudnn = {backends.Slow2d, backends.SlowDilated2d, backends.CudaDepthwise2d}

    def determine(source: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
        if source.dtype == torch.bfloat16 and backend in without_cudnn and card.capability[0] >= 8:
            backend = backends.Cudnn
        return original(source, weight, backend)

    torch._C._conv_determine_backend_memory_format = determine
