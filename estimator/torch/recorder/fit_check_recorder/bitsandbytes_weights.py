"""bitsandbytes: weights of 4 and 8 bits, optimizers whose state lies in managed memory, and its compiled library.

Its parameters are subclasses of Tensor that PyTorch makes from raw storage, so they are made from real tensors
on the processor that take no memory, and keep the storage of a fake one once they are on the card.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from .large_weights import untouched

if TYPE_CHECKING:
    from .mode import CardMode
    from .recording import Recording


def weights(mode: CardMode) -> Any:
    """Replace the constructors of the parameters, once `bitsandbytes.nn.modules` is imported."""

    def replace(module: types.ModuleType) -> None:
        for name in ("Params4bit", "Int8Params"):
            kind = getattr(module, name, None)
            if kind is not None:
                _replace_constructor(mode, kind)

    return replace


def _replace_constructor(mode: CardMode, kind: type) -> None:
    original = kind.__new__
    storages = mode.recording.storages

    def new(cls: type, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, torch.Tensor) and data.device.type == "cuda":
            # PyTorch lets a plain tensor take the storage of a fake one, and not one that has none.
            stand_in = torch.empty_strided(data.shape, data.stride(), dtype=data.dtype)
            result = original(cls, stand_in, *args, **kwargs)
            result.data = data
            return result
        return original(cls, untouched(data), *args, **kwargs)

    kind.__new__ = staticmethod(new)
    raw_device = torch.Tensor.device

    def device(tensor: torch.Tensor) -> torch.device:
        """The card, if the storage was born there: PyTorch sees storage without data (`meta`)."""
        found = raw_device.__get__(tensor)
        if found.type == "meta" and storages.block_of(tensor) is not None:
            return torch.device("cuda", torch.cuda.current_device())
        return found

    kind.device = property(device)
    kind.is_cuda = property(lambda tensor: tensor.device.type == "cuda")


class _Library:
    """The compiled library: its functions for the processor are called, and a launch on the card does nothing.

    Who calls it by address (axolotl, unsloth) has allocated all that a kernel writes.
    """

    def __init__(self, library: Any, recording: Recording) -> None:
        self._library = library
        self._recording = recording

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of the library, for which its own package asks."""
        return type(self._library)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        if not callable(found) or "cpu" in name:
            return found

        def launch(*args: Any) -> int:
            self._recording.approximate("kernel without data", name)
            return 0

        return launch


def launches(recording: Recording) -> Any:
    """Put it in the place of the library, once `bitsandbytes.cextension` has loaded that."""

    def replace(module: types.ModuleType) -> None:
        if hasattr(module, "lib"):
            module.lib = _Library(module.lib, recording)

    return replace


def managed_memory(module: types.ModuleType) -> None:
    """State that pages between card and processor is managed memory, which PyTorch's allocator does not count."""

    def get_paged(*shape: int, dtype: torch.dtype, device: Any = None) -> torch.Tensor:
        state = torch.zeros(*shape, dtype=dtype)
        state.is_paged = True
        state.page_deviceid = 0
        return state

    module.get_paged = get_paged
    module.prefetch_tensor = lambda *args, **kwargs: None
    module.fill = lambda *args, **kwargs: None
