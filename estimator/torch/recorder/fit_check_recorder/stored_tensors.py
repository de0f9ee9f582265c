"""Files of tensors: what `torch.load(..., map_location="cuda")` moves to a card, and what `torch.save` writes of one.

A storage on a card cannot be had without a driver. What stands for it is the storage of a tensor without data, and a
tensor that is made of it is on the card.
"""

from __future__ import annotations

import functools
import pickle
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from . import current_device, values

if TYPE_CHECKING:
    from .mode import CardMode

#: What small ones hold: a program looks at the step of an optimizer that it has loaded.
_known: weakref.WeakKeyDictionary[torch.UntypedStorage, values.Value] = weakref.WeakKeyDictionary()


def install(mode: CardMode) -> None:
    """Move storages to the card, make tensors of them, and write files of those that are there."""
    torch.save = _saving(torch.save)
    storages = mode.recording.storages
    untyped = torch.UntypedStorage
    move, rebuild = untyped.to, torch._utils._rebuild_tensor

    def to(storage: torch.UntypedStorage, *, device: Any, non_blocking: bool = False) -> torch.UntypedStorage:
        place = torch.device(device)
        if place.type != "cuda":
            return move(storage, device=device, non_blocking=non_blocking)
        index = current_device.of(place)
        if storages.is_known(storage):
            if storages.card_of(storage) == index:
                return storage
            bytes_: torch.Tensor = _tensor(storage, 0, (storage.nbytes(),), (1,), torch.uint8)
        else:
            bytes_ = torch.empty(0, dtype=torch.uint8).set_(storage)
        moved = bytes_.to(torch.device("cuda", index), copy=True)
        result = moved.untyped_storage()
        value = moved.__dict__.get("_fit_value")
        if value is not None:
            _known[result] = value
        return result

    def _tensor(
        storage: torch.UntypedStorage, offset: int, size: Any, stride: Any, dtype: torch.dtype
    ) -> torch.Tensor:  # fmt: skip
        meta = torch.empty(0, dtype=dtype, device="meta").set_(storage, offset, size, stride)
        result = FakeTensor(mode.fake, meta, torch.device("cuda", storages.card_of(storage)))
        value = _known.get(storage)
        if value is not None:
            real = torch.empty(0, dtype=dtype).set_(value.tensor.untyped_storage(), offset, size, stride)
            result._fit_value = values.Value(real, value.valid)
        return result

    def _rebuild_tensor(storage: Any, offset: int, size: Any, stride: Any) -> torch.Tensor:
        if storages.is_known(storage._untyped_storage):
            return _tensor(storage._untyped_storage, offset, size, stride, storage.dtype)
        return rebuild(storage, offset, size, stride)

    untyped.to = to  # type: ignore[method-assign]
    torch._utils._rebuild_tensor = _rebuild_tensor


def _saving(save: Any) -> Any:
    """`torch.save`, for tensors on the card too: the file has their sizes, and zeros in their place."""

    @functools.wraps(save)
    def saves(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        place = f.tell() if hasattr(f, "tell") else None
        try:
            save(obj, f, *args, **kwargs)
        except (AttributeError, TypeError, pickle.PicklingError):
            # What stands for a tensor on the card cannot be pickled. Here the file is as large as it would be, but its
            # blocks are never written: a large model takes no room.
            if place is not None:
                f.seek(place)
                f.truncate()
            with torch.serialization.skip_data(materialize_fake_tensors=True):
                save(obj, f, *args, **kwargs)

    return saves
