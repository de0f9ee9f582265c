"""cuDNN's recurrent layers (native/cudnn/RNN.cpp).

cuDNN says the sizes of its workspace and of what it keeps for the backward pass, and not why. These are the
sizes that it said on an H200 for an LSTM of two layers in both directions, split into the parts that they
are made of; so they are named as bounds.
"""

from __future__ import annotations

from typing import Any

from ..settings import Card
from .inside import Inside, Rule

#: Gates by cuDNN's number of the kind: RNN with ReLU, RNN with tanh, LSTM, GRU.
_GATES = {0: 1, 1: 1, 2: 4, 3: 3}


def _parts(args: tuple[Any, ...]) -> tuple[int, int, int, int]:
    """Gates; layers in all directions; bytes of one layer's output and of its state."""
    source, state, kind, hidden, layers = args[0], args[4], args[6], args[7], args[9]
    directions = 2 if args[13] else 1
    steps = source.shape[0] * source.shape[1] if source.dim() == 3 else source.shape[0]
    width = source.element_size()
    batch = state.shape[1]
    return _GATES[kind], layers * directions, steps * hidden * width, batch * hidden * width


def reserve_bytes(args: tuple[Any, ...]) -> int:
    """What is kept from the forward to the backward pass."""
    gates, count, output, state = _parts(args)
    directions = 2 if args[13] else 1
    return (count * (gates + 1) + count - directions) * output + 4 * count * state + 256


def _workspace(args: tuple[Any, ...]) -> int:
    gates, count, output, state = _parts(args)
    return count * (gates + 2) * output + 12 * count * state + 512


def _forward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """Output, states, workspace, and what is kept."""
    cell, reserve = result[2], result[3] if args[12] else None
    order = [0, 1] + ([2] if cell.numel() else [])
    # The input is copied if its samples come first; the workspace comes before what is kept.
    copy = [args[0].numel() * args[0].element_size()] if args[10] else []
    return Inside(before=copy, order=order, after=[_workspace(args)], bound=True, last=reserve)


def backward_workspace(args: tuple[Any, ...]) -> int:
    """The workspace of each half of the backward pass, whose arguments stand in another order."""
    source, state, kind, hidden = args[0], args[4], args[10], args[11]
    count = args[13] * (2 if args[17] else 1)
    steps = source.shape[0] * source.shape[1] if source.dim() == 3 else source.shape[0]
    width = source.element_size()
    size = count * (_GATES[kind] + 2) * steps * hidden * width
    return size + 12 * count * state.shape[1] * hidden * width + 512


RULES: dict[str, Rule] = {"aten::_cudnn_rnn": _forward}
