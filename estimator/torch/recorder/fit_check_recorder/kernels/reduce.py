"""The buffers of a reduction that is split over blocks (`setReduceConfig` in native/cuda/Reduce.cuh).

A sum of many rows into few columns needs a partial sum for each block: for the gradient of a bias that can be
as much as its input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..settings import Card

_MOST_THREADS = 512  # max_reduce_threads
_WARP = 32
_LEAST_VALUES, _MOST_VALUES = 16, 256  # of a thread


@dataclass(frozen=True)
class Reduction:
    """What is reduced: of the input's dimensions, those in `over`; `accumulator` is the partial's size."""

    source: torch.Tensor
    over: frozenset[int]
    accumulator: int

    def groups(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """(size, stride) of the reduced and of the kept dimensions, fastest first, merged where possible."""
        source = self.source
        reduced, kept = [], []
        for index, (size, stride) in enumerate(zip(source.shape, source.stride(), strict=True)):
            if size != 1:
                (reduced if index in self.over else kept).append((size, stride))
        return _merged(reduced), _merged(kept)


def _merged(dimensions: list[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for size, stride in sorted(dimensions, key=lambda dimension: dimension[1]):
        if result and result[-1][0] * result[-1][1] == stride:
            result[-1] = (result[-1][0] * size, result[-1][1])
        else:
            result.append((size, stride))
    return result


def buffers(card: Card, reduction: Reduction) -> list[int]:
    """The bytes of the partial results and of the semaphores; none if no output is split over blocks."""
    reduced, kept = reduction.groups()
    inputs = math.prod(size for size, _ in reduced)
    outputs = math.prod(size for size, _ in kept)
    if inputs == 0 or outputs == 0:
        return []
    along_fastest = not kept or (bool(reduced) and reduced[0][1] < kept[0][1])
    fastest = reduced[0][1] if along_fastest and reduced else kept[0][1] if kept else 1
    width, height = (inputs, outputs) if along_fastest else (outputs, inputs)
    vector = 1
    if fastest == 1:
        if along_fastest:
            if width > 128 and len(reduced) == 1:
                width //= 8 if reduction.source.element_size() == 2 else 4
        else:
            vector = _output_vector(reduction, reduced, kept)
            width //= vector
    return _split(card, reduction, inputs, outputs, along_fastest, vector, width, height)


def _output_vector(reduction: Reduction, reduced: list[tuple[int, int]], kept: list[tuple[int, int]]) -> int:
    """Follow `get_output_vec_size`."""
    vector = 4
    strides = [stride for _, stride in (*reduced, *kept[1:])]
    for value in (reduction.source.storage_offset(), kept[0][0], *strides):
        while value % vector:
            vector //= 2
    return vector


def _last_power_of_two(value: int) -> int:
    return max(1, 1 << (value.bit_length() - 1)) if value > 0 else 1


def _split(
    card: Card,
    reduction: Reduction,
    inputs: int,
    outputs: int,
    along_fastest: bool,
    vector: int,
    width: int,
    height: int,
) -> list[int]:
    most = _MOST_THREADS // vector
    width_power = _last_power_of_two(width) if width < most else most
    height_power = _last_power_of_two(height) if height < most else most
    block_width = min(width_power, _WARP)
    block_height = min(height_power, most // block_width)
    block_width = min(width_power, most // block_height)
    step_input, step_output = (block_width, 1) if along_fastest else (1, block_width)
    values = -(-inputs // step_input)
    if values < block_height * _LEAST_VALUES and values < _MOST_VALUES:
        return []  # each warp has an output of its own
    step_input *= block_height
    values = -(-inputs // step_input)
    threads = block_width * block_height
    target = card.multiprocessors * (card.threads // threads)
    grid = -(-(outputs // vector) // step_output)
    if values < _MOST_VALUES or grid > target:
        return []
    blocks = max(min(-(-target // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    if blocks <= 1:
        return []
    partials = reduction.accumulator * outputs * blocks
    if not along_fastest:
        partials *= block_width * vector
    return [partials, 4 * grid]


def dimensions(tensor: torch.Tensor, over: int | Sequence[int] | None) -> frozenset[int]:
    """The dimensions that an operator's argument names; none means all."""
    if over is None or (isinstance(over, (list, tuple)) and not over):
        return frozenset(range(tensor.dim()))
    named = [over] if isinstance(over, int) else over
    return frozenset(index % max(tensor.dim(), 1) for index in named)
