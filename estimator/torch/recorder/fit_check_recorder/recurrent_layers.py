"""`nn.LSTM`, `nn.GRU` and `nn.RNN` on the card: what PyTorch's C++ does around cuDNN's operator.

That code asks the driver for an event before it calls the operator (native/cudnn/RNN.cpp), so its few lines
are here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: cuDNN's number of each kind (cudnnRNNMode_t).
_KINDS = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}


def install() -> None:
    """Replace the four functions for tensors on the card."""
    for name, kind in _KINDS.items():
        original = getattr(torch._VF, name)
        setattr(torch._VF, name, _layer(original, kind))


def _layer(original: Callable[..., Any], kind: int) -> Callable[..., Any]:
    states: dict[torch.device, torch.Tensor] = {}

    def layer(*args: Any) -> Any:
        source = args[0]
        if source.device.type != "cuda" or not torch.backends.cudnn.enabled:
            return original(*args)
        packed = isinstance(args[1], torch.Tensor) and args[1].dim() == 1
        if packed:
            sizes, hx, weights, biases, layers, dropout, train, both = args[1:9]
            batch_first, batch_sizes = False, sizes.tolist()
        else:
            hx, weights, biases, layers, dropout, train, both, batch_first = args[1:9]
            batch_sizes = []
        hidden, cell = hx if kind == 2 else (hx, None)
        projection = hidden.shape[2] if kind == 2 and cell.shape[2] != hidden.shape[2] else 0
        size = cell.shape[2] if kind == 2 else hidden.shape[2]
        state = None
        if dropout > 0 and train:
            state = states.get(source.device)
            if state is None:
                torch.empty((), dtype=torch.int64, device=source.device)
                state = states[source.device] = torch._cudnn_init_dropout_state(
                    dropout, train, 0, dtype=torch.uint8, device=source.device
                )
        dtype = source.dtype
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            source, hidden = source.to(dtype), hidden.to(dtype)
            cell = None if cell is None else cell.to(dtype)
        # Under autocast the weights are copied into one buffer; these copies are as large together.
        weights = [weight.to(dtype) for weight in weights]
        stride = 4 if biases else 2
        if projection:
            stride += 1
        with torch.autocast("cuda", enabled=False):
            output, hidden, cell, _, _ = torch._cudnn_rnn(
                source, weights, stride, _flat(weights), hidden, cell, kind, size, projection,
                layers, batch_first, dropout, train, both, batch_sizes, state,
            )  # fmt: skip
        return (output, hidden, cell) if kind == 2 else (output, hidden)

    return layer


def _flat(weights: list[torch.Tensor]) -> torch.Tensor:
    """The buffer that all weights are views of (`try_get_weight_buf`), or an empty one."""
    storage = weights[0].untyped_storage()
    total = sum(weight.numel() for weight in weights)
    if storage.nbytes() != total * weights[0].element_size():
        return weights[0].new_empty(0)
    with torch.no_grad():
        return weights[0].detach().as_strided((total,), (1,), 0)
