"""Which kernel `scaled_dot_product_attention` takes, by PyTorch's rules for the card and the inputs.

Without a driver PyTorch itself takes the one that is made of plain operators. The rules are those of
aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, and what surrounds the kernels is that of
aten/src/ATen/native/transformers/attention.cpp.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from .settings import Card

aten = torch.ops.aten
CUDNN, FLASH, EFFICIENT, MATH = "cudnn", "flash", "efficient", "math"
_TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Inputs:
    """The arguments of a call."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    causal: bool
    gqa: bool

    @property
    def needs_gradient(self) -> bool:
        """Whether any of the three inputs requires a gradient."""
        return any(t.requires_grad for t in (self.query, self.key, self.value))

    @property
    def saves_sums(self) -> bool:
        """Follow `should_compute_logsumexp`."""
        return torch.is_grad_enabled() and self.needs_gradient


def choose(card: Card, inputs: Inputs) -> str:
    """The first kernel of the order of preference that can run."""
    for kernel in _order(card):
        if _can_run[kernel](card, inputs):
            return kernel
    return MATH


def _order(card: Card) -> tuple[str, ...]:
    """Follow `priority_order`, or what `sdpa_kernel(..., set_priority=True)` asks for."""
    if _prefers_cudnn(card):
        return CUDNN, FLASH, EFFICIENT
    return FLASH, EFFICIENT, CUDNN


def _prefers_cudnn(card: Card) -> bool:
    """Follow `check_prefer_cudnn_attention`."""
    if os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1" or cudnn_version() <= 91500:
        return False
    major, minor = card.capability
    cuda = tuple(int(part) for part in (torch.version.cuda or "13.0").split(".")[:2])
    return major in (9, 10) and (cuda >= (13, 0) or minor in (0, 3))


def cudnn_version() -> int:
    """The version of cuDNN that PyTorch would load: that of the installed package."""
    global _cudnn
    if _cudnn is None:
        _cudnn = _read_cudnn_version()
    return _cudnn


_cudnn: int | None = None


def _read_cudnn_version() -> int:
    from importlib import metadata

    for name in ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"):
        try:
            major, minor, patch = (int(part) for part in metadata.version(name).split(".")[:3])
        except (metadata.PackageNotFoundError, ValueError):
            continue
        return major * 10000 + minor * 100 + patch
    return 0


def _same_heads_or_grouped(inputs: Inputs) -> bool:
    """Follow `check_batch_size_and_num_heads_dense`."""
    query, key, value = inputs.query, inputs.key, inputs.value
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        return False
    heads, key_heads, value_heads = query.shape[1], key.shape[1], value.shape[1]
    if heads == key_heads == value_heads:
        return True
    return inputs.gqa and heads % key_heads == 0 and heads % value_heads == 0


def _dense(inputs: Inputs) -> bool:
    tensors = (inputs.query, inputs.key, inputs.value)
    return all(t.dim() == 4 and 0 not in t.shape for t in tensors)


def _last_stride_one(inputs: Inputs, with_mask: bool = False) -> bool:
    tensors = [inputs.query, inputs.key, inputs.value]
    fine = all(t.stride(-1) == 1 or t.shape[-1] == 1 for t in tensors)
    mask = inputs.mask
    if with_mask and mask is not None:
        return fine and (mask.stride(-1) == 1 or mask.shape[-1] == 1)
    return fine


def _half(card: Card, inputs: Inputs) -> bool:
    """Follow `check_dtypes_low_precision`."""
    allowed = _HALF if card.capability[0] >= 8 else (torch.float16,)
    return inputs.query.dtype in allowed


def _can_flash(card: Card, inputs: Inputs) -> bool:
    """Follow `can_use_flash_attention`."""
    query, key, value = inputs.query, inputs.key, inputs.value
    head = query.shape[-1]
    if not torch.backends.cuda.flash_sdp_enabled() or inputs.mask is not None or not _dense(inputs):
        return False
    if not head == key.shape[-1] == value.shape[-1] or head > 256 or card.number < 80:
        return False
    narrow = 86 <= card.number <= 89 or 120 <= card.number <= 121
    trains = inputs.needs_gradient and narrow
    if trains and head > 192 and (head <= 224 or inputs.dropout > 0):
        return False
    if inputs.causal and query.shape[-2] != key.shape[-2]:
        return False
    return _half(card, inputs) and _same_heads_or_grouped(inputs) and _last_stride_one(inputs)


def _alignment(card: Card, dtype: torch.dtype) -> int:
    """Follow `minimum_gemm_alignment`."""
    half = dtype in _HALF
    least = 4 if card.capability[0] >= 8 else 1
    if card.capability[0] >= 8 or (card.capability[0] >= 7 and half):
        least = max(least, 128 // (16 if half else 32))
    return least


def _can_efficient(card: Card, inputs: Inputs) -> bool:
    """Follow `can_use_mem_efficient_attention`."""
    query, key, value = inputs.query, inputs.key, inputs.value
    if not torch.backends.cuda.mem_efficient_sdp_enabled() or not _dense(inputs):
        return False
    if card.number < 50 or query.shape[-1] != key.shape[-1]:
        return False
    least = _alignment(card, query.dtype)
    if query.shape[-1] % least or value.shape[-1] % least:
        return False
    if card.capability[0] >= 8 and any(t.storage_offset() % least for t in (query, key, value)):
        return False
    if not _last_stride_one(inputs, with_mask=True) or not _same_heads_or_grouped(inputs):
        return False
    allowed = (torch.float16, torch.float32)
    return query.dtype in ((*allowed, torch.bfloat16) if card.capability[0] >= 8 else allowed)


def _can_cudnn(card: Card, inputs: Inputs) -> bool:
    """Follow `can_use_cudnn_attention`."""
    query, key, value = inputs.query, inputs.key, inputs.value
    version = cudnn_version()
    if not torch.backends.cuda.cudnn_sdp_enabled() or version < 90000 or not _dense(inputs):
        return False
    if inputs.dropout > 0 and 91100 < version < 91400:
        return False
    if torch.are_deterministic_algorithms_enabled() and not (torch.is_deterministic_algorithms_warn_only_enabled()):
        return False
    if not _half(card, inputs) or card.number < 80:
        return False
    if _TORCH >= (2, 12) and inputs.dropout * 16 != math.floor(inputs.dropout * 16):
        return False  # check_cudnn_dropout, which 2.11 has not
    if not _last_stride_one(inputs) or not _same_heads_or_grouped(inputs):
        return False
    heads = (query.shape[3], value.shape[3])
    hopper = card.number == 90 or card.capability[0] == 10
    limit = 128
    if hopper and version > 92200:
        limit = 256
    elif hopper and version >= 91100 and heads == (192, 128):
        limit = 192
    if max(heads) > limit or heads[0] % 8 or heads[1] % 8:
        return False
    wide = inputs.needs_gradient and limit == 256 and max(heads) > 128
    if wide and heads not in ((192, 128), (256, 256)):
        return False  # check_cudnn_d256_bprop_head_dim
    return key.shape[2] != 1 and not (inputs.dropout > 0 and query.shape[2] == 1)


_can_run: dict[str, Callable[[Card, Inputs], bool]] = {
    CUDNN: _can_cudnn,
    FLASH: _can_flash,
    EFFICIENT: _can_efficient,
}


def install(card: Card) -> None:
    """Replace `scaled_dot_product_attention` for tensors on the card."""
    original = functional.scaled_dot_product_attention

    def scaled_dot_product_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if query.device.type != "cuda" or type(query).__name__ not in ("FakeTensor", "Parameter"):
            return original(query, key, value, attn_mask, dropout_p, is_causal,
                            scale=scale, enable_gqa=enable_gqa)  # fmt: skip
        if torch.is_autocast_enabled("cuda"):
            # The operator is in autocast's list of lower precision (autocast_mode.h).
            dtype = torch.get_autocast_dtype("cuda")
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
            if attn_mask is not None and attn_mask.is_floating_point():
                attn_mask = attn_mask.to(dtype)
        inputs = Inputs(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        kernel = choose(card, inputs)
        # Autocast is over when its operator begins: the products and the softmax that it is made of keep float32.
        with torch.autocast("cuda", enabled=False):
            return _RUN[kernel](inputs, scale)

    functional.scaled_dot_product_attention = scaled_dot_product_attention
    torch._C._nn.scaled_dot_product_attention = scaled_dot_product_attention


def _additive(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """Follow `convert_boolean_attn_mask`."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    lowest = torch.scalar_tensor(float("-inf"), dtype=dtype, device=mask.device)
    return torch.where(mask, 0.0, lowest)


def _run_cudnn(inputs: Inputs, scale: float | None) -> torch.Tensor:
    mask = inputs.mask
    if mask is not None and mask.dtype == torch.bool:
        zero = torch.scalar_tensor(0.0, dtype=inputs.query.dtype, device=mask.device)
        mask = torch.where(mask.logical_not(), -65504.0, zero)
    return aten._scaled_dot_product_cudnn_attention(
        inputs.query, inputs.key, inputs.value, mask, inputs.saves_sums, inputs.dropout,
        inputs.causal, False, scale=scale,
    )[0]  # fmt: skip


def _run_flash(inputs: Inputs, scale: float | None) -> torch.Tensor:
    head = inputs.query.shape[-1]
    padding = -head % 8
    query, key, value = (
        functional.pad(tensor, (0, padding)) if padding else tensor
        for tensor in (inputs.query, inputs.key, inputs.value)
    )
    result = aten._scaled_dot_product_flash_attention(
        query, key, value, inputs.dropout, inputs.causal, False,
        scale=head**-0.5 if scale is None else scale,
    )[0]  # fmt: skip
    return result[..., :head] if padding else result


def _run_efficient(inputs: Inputs, scale: float | None) -> torch.Tensor:
    query, key = inputs.query, inputs.key
    mask = _additive(inputs.mask, query.dtype)
    if mask is not None:
        # preprocess_mask: rows are padded to a multiple of 8.
        strides = mask.stride()
        if strides[-1] != 1 or any(stride % 8 for stride in strides[:-1]):
            last = mask.shape[-1]
            mask = functional.pad(mask, (0, 8 - last % 8))[..., :last]
        mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    key, value = _repeated(inputs)
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, inputs.saves_sums, inputs.dropout, inputs.causal, scale=scale
    )[0]


def _repeated(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Follow `pre_process_group_query_attention_input`."""
    heads, key, value = inputs.query.shape[-3], inputs.key, inputs.value
    if not inputs.gqa or heads == key.shape[-3] == value.shape[-3]:
        return key, value
    return (
        key.repeat_interleave(heads // key.shape[-3], -3),
        value.repeat_interleave(heads // value.shape[-3], -3),
    )


def _run_math(inputs: Inputs, scale: float | None) -> torch.Tensor:
    """Follow `_scaled_dot_product_attention_math`, whose mask is added in place where no mode is active."""
    query, key, value = inputs.query, inputs.key, inputs.value
    dtype = query.dtype
    mask = _additive(inputs.mask, dtype)
    if dtype in _HALF and not torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed():
        query, key, value = query.float(), key.float(), value.float()
    factor = (query.shape[-1] ** -0.5 if scale is None else abs(scale)) ** 0.5
    query = query * factor
    if inputs.causal:
        ones = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        mask = _additive(ones.tril(), query.dtype)
    key, value = _repeated(Inputs(query, key, value, None, 0.0, False, inputs.gqa))
    scores = torch.matmul(query, key.transpose(-2, -1) * factor)
    if mask is not None:
        scores.add_(mask)
    scores = aten._safe_softmax(scores, -1)
    if inputs.dropout > 0:
        scores = torch.dropout(scores, inputs.dropout, True)
    return torch.matmul(scores, value).to(dtype)


_RUN = {CUDNN: _run_cudnn, FLASH: _run_flash, EFFICIENT: _run_efficient, MATH: _run_math}
