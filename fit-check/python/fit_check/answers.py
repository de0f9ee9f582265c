"""The answers, as docs/schema.json describes them. An answer may have more fields than are typed here.

Bytes are integers.
"""

from __future__ import annotations

from typing import Any, TypedDict


class _GpuFields(TypedDict):
    name: str
    usable_bytes: int
    overhead_bytes: int


class Gpu(_GpuFields, total=False):
    """A card, or an amount of memory."""

    provenance: str | None


class _VerdictFields(TypedDict):
    gpu: Gpu
    fits: bool
    required_bytes: int
    headroom_bytes: int


class Verdict(_VerdictFields, total=False):
    """Whether a step fits on one of several cards."""

    reason: str | None


class Peak(TypedDict):
    """The most memory that a step takes, and where."""

    live_bytes: int
    reserved_bytes: int
    required_bytes: int
    device_bytes: int
    phase: str
    step: int
    layer: str | None
    kernel: str | None


class FirstRejected(Peak):
    """The first batch that does not fit."""

    batch: int
    refused: str


class _CategoryFields(TypedDict):
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    temporaries: int
    inputs: int
    buffers: int


class Categories(_CategoryFields, total=False):
    """Bytes in use at the peak."""

    workspaces: int


class Parameters(TypedDict):
    """The parameters of a network."""

    trainable: int
    frozen: int
    buffers: int
    tensors: int
    bytes: int


class Phase(TypedDict):
    """A phase of the step."""

    phase: str
    live_bytes: int
    peak_live_bytes: int


class Layer(TypedDict):
    """A layer: its parameters, and what it holds at the peak."""

    path: str
    kind: str
    parameter_bytes: int
    activation_bytes: int
    gradient_bytes: int
    optimizer_bytes: int


class _JobFields(TypedDict):
    schema: int
    model: str
    precision: str
    optimizer: str
    runtime: str
    input: dict[str, Any]
    burn: dict[str, Any]


class _Job(_JobFields, total=False):
    batch: int | None
    tokens: int | None
    accumulate: int
    checkpointing: bool
    freeze: list[str]
    lora: dict[str, Any] | None
    weights: dict[str, Any] | None


class _EstimateFields(_Job):
    parameters: Parameters
    peak: Peak
    at_peak: Categories
    phases: list[Phase]
    layers: list[Layer]
    overhead_bytes: int


class Estimate(_EstimateFields, total=False):
    """The answer of :func:`fit_check.estimate`.

    ``fits``, ``gpu``, ``required_bytes``, ``headroom_bytes`` and ``reason`` are there with one card, ``cards`` with
    several; without a card there is no verdict.
    """

    fits: bool
    gpu: Gpu
    required_bytes: int
    headroom_bytes: int
    reason: str | None
    cards: list[Verdict]
    advice: dict[str, Any] | None
    pytorch: dict[str, Any] | None


class _CardBatchFields(TypedDict):
    gpu: Gpu
    max_batch: int
    at_max: Peak | None
    next: FirstRejected
    limit: str


class CardBatch(_CardBatchFields, total=False):
    """The largest batch on a card; 0 if not even one sample fits."""

    max_tokens: int | None


class _MaxBatchFields(_Job):
    cards: list[CardBatch]


class MaxBatch(_MaxBatchFields, total=False):
    """The answer of :func:`fit_check.max_batch`."""

    advice: dict[str, Any] | None


class _BatchCellFields(TypedDict):
    max_batch: int | None


class BatchCell(_BatchCellFields, total=False):
    """The largest batch in a cell of a table; none if it is not known: ``error`` says why."""

    error: str | None
    limit: str | None
    max_tokens: int | None
    method: str | None
    refused: str | None


class TableRow(_Job):
    """A model and a number format."""

    unit: str
    cells: list[BatchCell]


class _ColumnFields(TypedDict):
    label: str
    name: str
    usable_bytes: int
    overhead_bytes: int


class Column(_ColumnFields, total=False):
    """A card of a table."""

    provenance: str | None


class Table(TypedDict):
    """The answer of :func:`fit_check.table`."""

    schema: int
    complete: bool
    cards: list[Column]
    rows: list[TableRow]
