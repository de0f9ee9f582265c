"""A small model of PyTorch's caching allocator, to turn lines into the figures that PyTorch would print.

The program that reads the lines has the real one (in Rust); this is for the recorder's tests. Its rules are
those of c10/cuda/CUDACachingAllocator.cpp for the native backend with default settings: sizes rounded to
512 bytes, small blocks (up to 1 MiB) from segments of 2 MiB, others from 20 MiB or from their size rounded
to 2 MiB; the smallest block that fits is split if enough is left over; neighbours merge.
"""

import bisect
import json

MIB = 1 << 20
#: The kind of a block that a kernel does without if memory is short.
OPTIONAL = 3


class OutOfMemory(Exception):
    """The device has no memory for a block."""


class Block:
    __slots__ = ("address", "following", "free", "pool", "previous", "size")


class Allocator:
    def __init__(self, capacity=None):
        self.capacity = capacity
        self.free = {}
        self.end = 0
        self.allocated = self.reserved = self.peak = self.peak_reserved = 0

    def malloc(self, size, stream):
        size = max(512, (size + 511) // 512 * 512)
        small = size <= MIB
        pool = self.free.setdefault((small, stream), [])
        index = bisect.bisect_left(pool, (size, -1))
        if index < len(pool):
            block = pool.pop(index)[2]
        else:
            block = self._segment(size, small, pool)
        rest = block.size - size
        if rest >= 512 if small else rest > MIB:
            other = Block()
            other.address, other.size, other.pool, other.free = (
                block.address + size,
                rest,
                pool,
                True,
            )
            other.previous, other.following = block, block.following
            if block.following:
                block.following.previous = other
            block.following, block.size = other, size
            bisect.insort(pool, (rest, other.address, other))
        block.free = False
        self.allocated += block.size
        self.peak = max(self.peak, self.allocated)
        return block

    def _segment(self, size, small, pool):
        if small:
            total = 2 * MIB
        else:
            total = 20 * MIB if size < 10 * MIB else (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        if not self._has(total):
            self.empty_cache()
            if not self._has(total):
                raise OutOfMemory
        block = Block()
        block.address, block.size, block.pool = self.end, total, pool
        block.previous = block.following = None
        self.end += total + 2 * MIB
        self.reserved += total
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _has(self, size):
        return self.capacity is None or self.reserved + size <= self.capacity

    def release(self, block):
        self.allocated -= block.size
        block.free = True
        for other in (block.previous, block.following):
            if other is None or not other.free:
                continue
            pool = block.pool
            pool.pop(bisect.bisect_left(pool, (other.size, other.address)))
            if other is block.previous:
                block.address, block.previous = other.address, other.previous
                if block.previous:
                    block.previous.following = block
            else:
                block.following = other.following
                if block.following:
                    block.following.previous = block
            block.size += other.size
        bisect.insort(block.pool, (block.size, block.address, block))

    def empty_cache(self):
        for pool in self.free.values():
            kept = []
            for entry in pool:
                block = entry[2]
                if block.previous is None and block.following is None:
                    self.reserved -= block.size
                else:
                    kept.append(entry)
            pool[:] = kept


def replay(path, capacity=None):
    """The allocator after all lines, and the peaks of each stretch that ends with a reset of the peaks.

    Raises OutOfMemory if a device with so many bytes cannot hold it.
    """
    allocator, live, peaks = Allocator(capacity), {}, []
    with open(path, encoding="utf-8") as lines:
        for text in lines:
            line = json.loads(text)
            if line[0] == "a" and line[2] > 0:
                try:
                    live[line[1]] = allocator.malloc(line[2], line[5])
                except OutOfMemory:
                    if line[6] != OPTIONAL:
                        raise
            elif line[0] == "f" and line[1] in live:
                allocator.release(live.pop(line[1]))
            elif line[0] == "e":
                allocator.empty_cache()
            elif line[0] == "z":
                peaks.append((allocator.peak, allocator.peak_reserved))
                allocator.peak, allocator.peak_reserved = allocator.allocated, allocator.reserved
    peaks.append((allocator.peak, allocator.peak_reserved))
    return allocator, peaks
