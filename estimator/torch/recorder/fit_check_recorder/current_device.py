"""The current card of a thread. PyTorch's C++ holds it, as on a real machine.

`tensor.cuda()` and `tensor.to("cuda")` ask C++ which card is meant before any operator is seen, and a thread of
autograd sets the card of the node that it runs. Where there is no driver, PyTorch has a guard that does nothing but
remember the card of each thread (c10/core/impl/FakeGuardImpl.h). So nothing is remembered here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch


class _Thread(threading.local):
    device = 0


_thread = _Thread()
_count = 1


def _thread_exchange(device: int) -> int:
    before, _thread.device = _thread.device, device
    return before


def _accessors() -> tuple[Callable[[], int], Callable[[int], int]]:
    """How the current card is read and exchanged; a build of PyTorch without CUDA does not say it to Python."""
    if torch._C._accelerator_getAccelerator() is None:
        return lambda: _thread.device, _thread_exchange
    return torch._C._accelerator_getDeviceIndex, torch._C._accelerator_exchangeDevice


#: The index of the current card. What is here was taken before `install` puts other functions there.
index, _exchange = _accessors()


def install(count: int) -> None:
    """Let each way to the current card lead to the same one, of which there are so many."""
    global _count
    _count = count
    torch._C._ensureCUDADeviceGuardSet()
    below = torch._C
    torch.cuda.current_device = index
    below._cuda_getDevice = below._accelerator_getDeviceIndex = index
    below._cuda_setDevice = below._accelerator_setDeviceIndex = set_index
    for name in ("_accelerator_exchangeDevice", "_accelerator_maybeExchangeDevice",
                 "_cuda_exchangeDevice", "_cuda_maybeExchangeDevice"):  # fmt: skip
        setattr(below, name, exchange)
    # torch.cuda has names of its own for these.
    torch.cuda._exchange_device = torch.cuda._maybe_exchange_device = exchange


def check(device: int) -> int:
    """Raise what CUDA says of a card that is not there."""
    if device >= _count:
        raise torch.AcceleratorError(
            f"CUDA error: invalid device ordinal (the program asks for cuda:{device}, and"
            f" {_count} {'card is' if _count == 1 else 'cards are'} described)"
        )
    return device


def exchange(device: int) -> int:
    """Make a card the current one of this thread, and return the one before. A negative index changes nothing."""
    if device < 0:
        return index()
    return _exchange(check(device))


def set_index(device: int) -> None:
    """Make a card the current one of this thread."""
    exchange(device)


def of(device: Any = None) -> int:
    """The index of a device as the functions of torch.cuda take it: a card without an index is the current one."""
    if device is None:
        return index()
    chosen: int = torch.cuda._utils._get_device_index(device, optional=True)
    return index() if chosen < 0 else check(chosen)
