"""Dropout."""

from __future__ import annotations

from typing import Any

from ..settings import Card
from .inside import Inside, Rule


def _dropout(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """Follow `dropout_cuda` in native/cuda/Dropout.cu, which makes the mask first."""
    return Inside(order=(1, 0))


RULES: dict[str, Rule] = {"aten::native_dropout": _dropout}
