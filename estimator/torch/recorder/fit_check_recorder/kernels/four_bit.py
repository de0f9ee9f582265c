"""bitsandbytes' operators on 4 bits (bitsandbytes/backends/cuda/ops.py)."""

from __future__ import annotations

from typing import Any

from ..settings import Card
from .inside import Inside, Rule


def _quantize(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """The scales come first."""
    return Inside(order=(1, 0))


def _gemm(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `gemm_4bit`: with many rows it restores the weight and multiplies with cuBLAS."""
    source, shape, block = args[0], args[2], args[4]
    nested = args[7] if len(args) > 7 else kwargs.get("absmax_8bit")
    columns = source.shape[-1]
    rows = source.numel() // columns
    if rows <= 1536 and columns % block == 0:
        from bitsandbytes.backends.cuda import ops

        if ops._gemm_4bit_use_custom_cuda(0, source.dtype, rows, shape[0], columns):
            return None
    scales = [] if nested is None else [nested.numel() * 4] * 2
    weight = shape[0] * columns * source.element_size()
    return Inside(before=[*scales, *([-1] if scales else []), weight], gemm=True)


RULES: dict[str, Rule] = {
    "bitsandbytes::quantize_4bit": _quantize,
    "bitsandbytes::gemm_4bit": _gemm,
}
