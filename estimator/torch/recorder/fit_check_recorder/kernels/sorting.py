"""Sorting (native/cuda/Sort.cpp, Sorting.cpp)."""

from __future__ import annotations

from typing import Any

from ..settings import Card
from .inside import Inside, Rule


def _sort(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """A copy of the keys and of the indices, for the radix sort's second buffer."""
    source = args[0]
    return Inside(after=[source.numel() * source.element_size(), source.numel() * 8], bound=True)


RULES: dict[str, Rule] = {"aten::sort": _sort, "aten::topk": _sort, "aten::_unique2": _sort}
