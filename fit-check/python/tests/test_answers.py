"""The typed answers are those of docs/schema.json."""

import json
from pathlib import Path

import pytest
from fit_check import answers

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/schema.json").read_text())["$defs"]


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        (answers.Estimate, "estimate"),
        (answers.MaxBatch, "max_batch"),
        (answers.Table, "table"),
        (answers.TableRow, "Row"),
        (answers.BatchCell, "BatchCell"),
        (answers.CardBatch, "CardBatch"),
        (answers.Column, "Column"),
        (answers.FirstRejected, "FirstRejected"),
        (answers.Gpu, "GpuName"),
        (answers.Verdict, "Verdict"),
        (answers.Peak, "Peak"),
        (answers.Categories, "Breakdown"),
        (answers.Parameters, "Parameters"),
        (answers.Phase, "PhaseMemory"),
        (answers.Layer, "LayerMemory"),
    ],
)
def test_typed_fields_are_those_of_the_schema(typed, name):
    described = SCHEMA[name]
    assert set(typed.__annotations__) <= set(described["properties"])
    assert typed.__required_keys__ == frozenset(described["required"])
