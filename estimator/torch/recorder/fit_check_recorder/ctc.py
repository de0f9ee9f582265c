"""The loss of speech recognition (`ctc_loss`), of which PyTorch has no fake for lengths that are tensors.

Sizes are those of `ctc_loss_gpu_template` and `ctc_loss_backward_gpu_template` (native/cuda/LossCTC.cu).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from . import values
from .storages import TEMPORARY

if TYPE_CHECKING:
    from .mode import CardMode, Operator

aten = torch.ops.aten


def install() -> None:
    """Give the loss its lengths as numbers.

    PyTorch reads them so. For a tensor without data it has another formula, for which they are on the card.
    """
    original = torch.ctc_loss

    def ctc_loss(scores: Any, targets: Any, steps: Any, lengths: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(scores, FakeTensor):
            both = [_numbers(steps), _numbers(lengths)]
            if None in both:
                both = [torch.as_tensor(tensor, device=scores.device) for tensor in (steps, lengths)]
            steps, lengths = both
        return original(scores, targets, steps, lengths, *args, **kwargs)

    torch.ctc_loss = ctc_loss


def _numbers(lengths: Any) -> list[int] | None:
    """The lengths, if they are known."""
    value = values.of(lengths) if isinstance(lengths, FakeTensor) else lengths
    return value.tolist() if isinstance(value, torch.Tensor) else value


def uses_cudnn(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Whether cuDNN or MIOpen computes the loss: never here. cuDNN does for targets in int32 alone."""
    if "cudnn" in operator.name and args[1].dtype == torch.int32 and args[1].dim() == 1:
        mode.recording.approximate_here("kernel not modelled", "cuDNN's ctc_loss")
    return False


def loss(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """The loss of each sample, and what the backward pass needs: one row of 2 L + 1 for each step."""
    scores, targets = args[0], args[1]
    if scores.device.type != "cuda":
        return NotImplemented
    steps, samples = scores.shape[:2] if scores.dim() == 3 else (scores.shape[0], 1)
    longest = _longest(args[3])
    if longest is None:
        longest = targets.shape[-1]
        size = samples * steps * (2 * longest + 1) * scores.element_size()
        mode.recording.approximate_here("data-dependent size", operator.name, size)
    lengths = [mode.recording.storages.take(8 * samples, operator.name, TEMPORARY, scores.device.index) for _ in "ab"]
    rows = _new(mode, (samples, steps, 2 * longest + 1), scores)
    losses = _new(mode, (samples,), scores)
    for tensor in (rows, losses):
        mode.recording.storages.see(tensor, operator.name)
    for block in lengths:
        mode.recording.storages.give(block)
    return losses, rows


def backward(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """The gradient of the scores, beside as many rows as the loss has."""
    scores, rows = args[1], args[6]
    if scores.device.type != "cuda":
        return NotImplemented
    storages = mode.recording.storages
    others = storages.take(rows.numel() * rows.element_size(), operator.name, TEMPORARY, scores.device.index)
    gradient = _new(mode, scores.shape, scores)
    storages.see(gradient, operator.name)
    storages.give(others)
    return gradient


def _longest(lengths: Any) -> int | None:
    """The most that a target has, if it is known."""
    if not isinstance(lengths, torch.Tensor):
        return max(lengths, default=0)
    value = values.of(lengths) if lengths.device.type == "cuda" else lengths
    return None if value is None else int(value.max())


def _new(mode: CardMode, shape: Any, like: torch.Tensor) -> torch.Tensor:
    stride = torch.empty(shape, device="meta").stride()
    return mode.empty(shape, stride, like.dtype, like.device)


_BY_NAME = {
    "_use_cudnn_ctc_loss": uses_cudnn,
    "_use_miopen_ctc_loss": uses_cudnn,  # PyTorch 2.15 asks it of any card
    "_ctc_loss": loss,
    "_ctc_loss_backward": backward,
}
SPECIAL: dict[OpOverload, Any] = {
    getattr(getattr(aten, name), overload): run
    for name, run in _BY_NAME.items()
    if hasattr(aten, name)
    for overload in getattr(aten, name).overloads()
    if overload != "out"
}
