"""Birth and death of the storages on the card, and of what kernels take besides."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .recording import Recording

#: What a block is. A kernel does without an optional one where memory is short.
TENSOR, WORKSPACE, TEMPORARY, OPTIONAL = 0, 1, 2, 3


class _Death(weakref.ref):
    """A weak reference to a storage that knows the storage's block."""

    __slots__ = ("address", "block")

    block: int
    address: int


def rounded(size: int) -> int:
    """The size that the caching allocator counts: multiples of 512 bytes (kMinBlockSize)."""
    return (size + 511) & ~511


def parts_of_sparse(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What holds a sparse tensor, which has no storage of its own: the places of its values, and the values."""
    return tensor._indices(), tensor._values()


class Storages:
    """All blocks that live on the cards, in the order in which the program makes them."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._blocks: dict[int, _Death] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self._next = 0
        #: Whether what happens now is no part of the program.
        self.ignores = False
        self.live: dict[int, int] = {}
        self.peak: dict[int, int] = {}

    def block_of(self, tensor: torch.Tensor) -> int | None:
        """The block of a tensor's storage, if it has one."""
        death = self._blocks.get(tensor.untyped_storage()._cdata)
        return None if death is None else death.block

    def is_known(self, storage: torch.UntypedStorage) -> bool:
        """Whether the storage was born on a card."""
        return storage._cdata in self._blocks

    def card_of(self, storage: torch.UntypedStorage) -> int:
        """The index of the card on which a known storage was born."""
        return self._sizes[self._blocks[storage._cdata].block][1]

    def see(self, tensor: torch.Tensor, operator: str) -> None:
        """Note the birth of the tensor's storage, unless it is known."""
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:
            # How many values it has is data, too, and PyTorch's fake has none.
            self._recording.approximate_here("sparse tensor", f"the values of what {operator} makes are not counted")
            for part in parts_of_sparse(tensor):
                self.see(part, operator)
            return
        address = storage._cdata
        if address not in self._blocks and not self.ignores:
            index = tensor.device.index or 0
            self._bind(storage, self._birth(storage.nbytes(), operator, TENSOR, index))

    def _bind(self, storage: torch.UntypedStorage, block: int) -> None:
        death = _Death(storage, self._died)
        death.block = block
        death.address = storage._cdata
        self._blocks[death.address] = death

    def resized(self, storage: torch.UntypedStorage, operator: str) -> None:
        """Note that a storage may have another size: its block dies and another one is born."""
        death = self._blocks.get(storage._cdata)
        if death is None:
            return
        size, device = self._sizes.get(death.block, (0, 0))
        if storage.nbytes() != size:
            self._free(death.block)
            death.block = self._birth(storage.nbytes(), operator, TENSOR, device)

    def follow_resizes(self) -> None:
        """Follow `storage.resize_(n)`, with which sharded parameters are freed and gathered."""
        original = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            result = original(storage, size)
            self.resized(storage, "storage.resize_")
            return result

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign]

    def take(self, size: int, operator: str, kind: int, device: int = 0) -> int:
        """A kernel allocates; the caller frees it with `give`, unless it is a workspace that stays."""
        return self._birth(size, operator, kind, device)

    def give(self, block: int) -> None:
        """A kernel frees what it had taken."""
        self._free(block)

    def _birth(self, size: int, operator: str, kind: int, device: int) -> int:
        block = self._next
        self._next += 1
        self._sizes[block] = (size, device)
        live = self.live.get(device, 0) + rounded(size)
        self.live[device] = live
        if live > self.peak.get(device, 0):
            self.peak[device] = live
        self._recording.on_birth(block, size, operator, kind, device)
        return block

    def _free(self, block: int) -> None:
        size, device = self._sizes.pop(block, (0, 0))
        self.live[device] = self.live.get(device, 0) - rounded(size)
        self._recording.on_death(block)

    def _died(self, death: _Death) -> None:
        # Another storage may have the address by now.
        if self._blocks.get(death.address) is death:
            del self._blocks[death.address]
        self._free(death.block)

    def reset_peak(self, device: int) -> None:
        """`torch.cuda.reset_peak_memory_stats`."""
        self.peak[device] = self.live.get(device, 0)
