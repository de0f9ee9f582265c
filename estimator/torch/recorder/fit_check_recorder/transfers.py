"""Operators that move tensors between the processor and the card, read from it, or only write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from . import ctc, packed_sequences, subclasses, values
from .kernels import recurrent as recurrent_kernels
from .storages import TEMPORARY

if TYPE_CHECKING:
    from .mode import CardMode, Operator

aten = torch.ops.aten

#: From so many bytes on a tensor that comes back from the card has no data on the processor either.
LARGE_BYTES = 1 << 20


def _strides(tensor: torch.Tensor, memory_format: torch.memory_format | None) -> tuple[int, ...]:
    """The strides of a copy, by the rules of `empty_like`."""
    meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return torch.empty_like(meta, memory_format=memory_format or torch.preserve_format).stride()


def to_copy(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `tensor.to(...)`."""
    source = args[0]
    device = kwargs.get("device")
    target = source.device if device is None else torch.device(device)
    dtype = kwargs.get("dtype") or source.dtype
    if target.type == "cuda" and not fake:
        source = subclasses.real(source)
        strides = _strides(source, kwargs.get("memory_format"))
        result = mode.empty(source.shape, strides, dtype, target)
        mode.recording.storages.see(result, operator.name)
        values.know(result, lambda: source.detach().to(dtype).clone(), source)
        return result
    if target.type == "cpu" and source.device.type == "cuda":
        value = values.of(source)
        if value is not None:
            return value.to(dtype).clone()
        mode.recording.approximate_here("value read as zero", "a tensor that came from the card")
        if source.numel() * dtype.itemsize >= LARGE_BYTES:
            return mode.empty(source.shape, _strides(source, None), dtype, target)
        return torch.zeros(source.shape, dtype=dtype)
    return NotImplemented


def copy_(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `target.copy_(source)`."""
    target, source = args[0], args[1]
    if isinstance(target, FakeTensor):
        value = values.of(source) if isinstance(source, FakeTensor) else None
        if value is None and not isinstance(source, FakeTensor) and values.is_small(source):
            value = source
        values.overwrite(target, value)
        return target
    value = values.of(source)
    if value is not None:
        target.copy_(value)
    else:
        mode.recording.approximate_here("value read as zero", "a tensor that came from the card")
    return target


def read_scalar(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `.item()`, `bool(tensor)` and the like."""
    tensor = args[0]
    value = values.of(tensor)
    if value is not None:
        return value.item()
    mode.recording.approximate_here("value read as zero", "a scalar that came from the card")
    if tensor.dtype == torch.bool:
        return False
    return 0.0 if tensor.is_floating_point() else 0


def equal(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `torch.equal`: unknown values are equal."""
    first, second = (values.of(tensor) for tensor in args[:2])
    if first is not None and second is not None:
        return torch.equal(first, second)
    mode.recording.approximate_here("value read as zero", "torch.equal of tensors on the card")
    return True


def all_close(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `torch.allclose`: a program compares what should be alike, so unknown values are."""
    with mode:
        result = aten.isclose.default.decompose(*args, **kwargs).all()
    value = values.of(result)
    if value is not None:
        return bool(value)
    mode.recording.approximate_here("check taken as passed", "torch.allclose of tensors on the card")
    return True


def same(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Pinning gives back the tensor itself."""
    return args[0]


def not_pinned(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """No memory is pinned."""
    return False


def fill(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Operators that only write values (`zero_`, `normal_`)."""
    target = args[0]
    value = values.of(target)
    if value is not None and operator.name in ("aten::zero_", "aten::fill_"):
        return NotImplemented  # its new value is known
    values.overwrite(target, None)
    return target


def draw(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `torch.multinomial`: what follows from a token or an action is consistent, and no token ends a text at once.

    The first and the last tokens of a vocabulary are those that mean the end, so one in the middle is drawn.
    """
    result = mode.run(func, operator, (FakeTensor,), args, kwargs)
    categories = args[0].shape[-1]
    if categories and values.is_small(result):
        drawn = (torch.arange(result.shape[-1]) + categories // 2) % categories
        result._fit_value = values.Value(drawn.expand(result.shape).clone(), [True])
        mode.recording.approximate_here("value not drawn", "torch.multinomial took a category in the middle")
    return result


def set_storage(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `tensor.set_(storage, ...)`: the fake mode must not keep its arguments, or the storage would never die."""
    if not fake:
        return NotImplemented
    mode.fake.cache_enabled = False
    try:
        return mode.run(func, operator, (FakeTensor,), args, kwargs)
    finally:
        mode.fake.cache_enabled = True


def write_list(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """A foreach operator that works in place allocates nothing but what its rule says."""
    for target in args[0]:
        values.overwrite(target, None)
    mode.note(func, operator, args, kwargs, None)


def flatten_weights(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `_cudnn_rnn_flatten_weight`: all weights become views of one buffer (native/cudnn/RNN.cpp)."""
    weights = args[0]
    total = sum(weight.numel() for weight in weights)
    flat = mode.empty((total,), (1,), weights[0].dtype, weights[0].device)
    mode.recording.storages.see(flat, operator.name)
    offset = 0
    with mode.fake:
        for weight in weights:
            # A storage that the fake mode is given is one that it keeps.
            weight.data = flat.as_strided(weight.size(), weight.stride(), offset)
            offset += weight.numel()
    return flat


def recurrent(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `_cudnn_rnn`, whose fake says nothing of what is kept for the backward pass."""
    with mode.fake:
        result = list(func(*args, **kwargs))
    if args[10]:
        # Samples come first, and cuDNN puts steps first: the output is a transposed view.
        samples, steps, width = result[0].shape
        stride = (width, samples * width, 1)
        result[0] = mode.empty((samples, steps, width), stride, args[0].dtype, args[0].device)
    if args[12]:
        size = recurrent_kernels.reserve_bytes(args)
        result[3] = mode.empty((size,), (1,), torch.uint8, args[0].device)
    mode.note(func, operator, args, kwargs, tuple(result))
    return tuple(result)


def recurrent_backward(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `_cudnn_rnn_backward`: gradients of input and states, then those of all weights in one buffer."""
    source, weights, hidden, cell = args[0], args[1], args[4], args[5]
    storages = mode.recording.storages

    def like(tensor: torch.Tensor) -> FakeTensor:
        meta = torch.empty(tensor.shape, device="meta")
        return mode.empty(meta.shape, meta.stride(), tensor.dtype, tensor.device)

    states = [tensor for tensor in (hidden, cell) if tensor is not None]
    undefined = [like(state) for state, grad in zip(states, args[8:10], strict=False) if grad is None]
    copies = [like(tensor) for tensor in (source, args[6])] if args[14] else []
    gradients = [like(source), *(like(state) for state in states)]
    workspace = recurrent_kernels.backward_workspace(args)
    for tensor in (*undefined, *copies, *gradients):
        storages.see(tensor, operator.name)
    storages.give(storages.take(workspace, operator.name, TEMPORARY))
    total = sum(weight.numel() for weight in weights)
    flat = mode.empty((total,), (1,), weights[0].dtype, weights[0].device)
    storages.see(flat, operator.name)
    storages.give(storages.take(workspace, operator.name, TEMPORARY))
    parts, offset = [], 0
    with mode.fake:
        for weight in weights:
            stride = torch.empty(weight.shape, device="meta").stride()
            parts.append(flat.as_strided(weight.shape, stride, offset))
            offset += weight.numel()
    grad_cell = gradients[2] if cell is not None else None
    return gradients[0], gradients[1], grad_cell, parts


def dropout_state(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `_cudnn_init_dropout_state`: cuDNN's state for random numbers, as an H200 has it (132 SMs)."""
    size = 49152 * mode.card.multiprocessors
    state = mode.empty((size,), (1,), torch.uint8, "cuda")
    mode.recording.storages.see(state, operator.name)
    return state


SPECIAL: dict[OpOverload, Any] = {
    aten._to_copy.default: to_copy,
    aten.copy_.default: copy_,
    aten._local_scalar_dense.default: read_scalar,
    aten.equal.default: equal,
    aten.allclose.default: all_close,
    aten.multinomial.default: draw,
    aten.set_.source_Storage: set_storage,
    aten.set_.source_Storage_storage_offset: set_storage,
    aten.is_pinned.default: not_pinned,
    aten._pin_memory.default: same,
    aten._cudnn_rnn_flatten_weight.default: flatten_weights,
    aten._cudnn_rnn.default: recurrent,
    aten._cudnn_rnn_backward.default: recurrent_backward,
    aten._cudnn_init_dropout_state.default: dropout_state,
    **ctc.SPECIAL,
    **packed_sequences.SPECIAL,
}
