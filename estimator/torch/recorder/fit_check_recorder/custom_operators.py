"""Operators that a package writes in Python (`torch.library.custom_op`): what their code allocates is followed.

PyTorch's fake mode asks such an operator for the form of its result alone. A loss over a large vocabulary, for one,
makes its logits inside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload

if TYPE_CHECKING:
    from .mode import CardMode


class _AddressError(RuntimeError):
    """The code of an operator asks where a tensor is on the card: it calls something that is compiled."""


class _Running(threading.local):
    operators = 0


_running = _Running()


def run(mode: CardMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator by its own code; NotImplemented if it has none that can do without the card."""
    function = _code_of(func)
    if function is None:
        return NotImplemented
    _running.operators += 1
    try:
        with mode:
            return function(*args, **kwargs)
    except Exception:
        # Most often it calls something that is compiled for the card. An error of the program comes again.
        return NotImplemented
    finally:
        _running.operators -= 1


def on_address() -> None:
    """An address on the card is asked for. A library that gets one calls the driver, and may end the process."""
    if _running.operators:
        raise _AddressError("there is no address on a card that does not exist")


def _code_of(func: OpOverload) -> Callable[..., Any] | None:
    """The function for tensors on the card, or for those of any device."""
    definition = OPDEFS.get(func._schema.name)
    functions = getattr(definition, "_backend_fns", {})
    return functions.get("cuda") or functions.get(None)
