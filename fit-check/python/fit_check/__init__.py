"""Asks fit-check whether a training job fits on a GPU, from Python.

>>> import fit_check
>>> answer = fit_check.estimate("resnet-50", batch=32, gpu="rtx-3090")
>>> answer["fits"], answer["required_bytes"]

Each function runs the program ``fit-check`` and returns its JSON. A job that does not fit is an answer: ``fits`` is
false. :class:`FitCheckError` says that there is no answer, and why.
"""

from .answers import BatchCell, CardBatch, Estimate, Gpu, MaxBatch, Peak, Table, TableRow, Verdict
from .jobs import estimate, max_batch, table
from .program import FitCheckError, FitCheckTimeout, find_program

__all__ = [
    "BatchCell",
    "CardBatch",
    "Estimate",
    "FitCheckError",
    "FitCheckTimeout",
    "Gpu",
    "MaxBatch",
    "Peak",
    "Table",
    "TableRow",
    "Verdict",
    "estimate",
    "find_program",
    "max_batch",
    "table",
]
