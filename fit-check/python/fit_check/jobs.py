"""The questions, with the options of the command line as arguments: ``--lora-base 4bit`` is ``lora_base="4bit"``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Union, cast

from .program import ask

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .answers import Estimate, MaxBatch, Table

#: A model of the zoo, or a path: a ``config.json``, a safetensors file, a folder with them.
Model = Union[str, "os.PathLike[str]"]

#: One, or several.
Names = Union[str, Sequence[str]]


class JobOptions(TypedDict, total=False):
    """How a model is trained, and on which cards. ``fit-check estimate --help`` explains each."""

    #: Cards: ``"rtx-3090"``, ``"24GB"``, ``["l4", "a10"]``.
    gpu: Names
    #: Exactly this much memory: ``"10GiB"``, or a number of bytes.
    memory: str | int
    #: ``"burn"`` or ``"pytorch"``. The answer for PyTorch has other fields.
    framework: str
    #: ``"fp32"``, ``"fp16"``, ``"bf16"`` or ``"mixed"``; :func:`table` takes several.
    precision: Names
    optimizer: str
    accumulate: int
    checkpointing: bool
    freeze: Names
    #: The height and width of an image.
    image: int | tuple[int, int]
    seq: int
    src_seq: int
    classes: int
    vocab: int
    lora: int
    lora_targets: Names
    lora_base: str
    runtime: str
    tuning: str


#: Options that the program takes once, with commas between several values.
_WITH_COMMAS = ("lora_targets",)


def estimate(
    model: Model,
    *,
    batch: int | None = None,
    tokens: int | None = None,
    timeout: float | None = None,
    **options: Unpack[JobOptions],
) -> Estimate:
    """The memory of a training step: whether it fits, what it needs, and what takes it.

    Args:
        model: A model of the zoo, or a path.
        batch: Samples in a batch; that of the published recipe if neither this nor ``tokens`` is given.
        tokens: Tokens in a batch, in place of samples.
        timeout: Seconds after which to give up.

    Raises:
        FitCheckError: There is no answer.
        FitCheckTimeout: There was none in time.
        TypeError: There is no such option.
    """
    words = ["estimate", *_words({"batch": batch, "tokens": tokens}), *_job(options), os.fspath(model)]
    return cast("Estimate", ask(words, timeout))


def max_batch(model: Model, *, timeout: float | None = None, **options: Unpack[JobOptions]) -> MaxBatch:
    """The largest batch on each card, and what the card refuses with one sample more.

    Raises:
        FitCheckError: There is no answer.
        FitCheckTimeout: There was none in time.
        TypeError: There is no such option.
    """
    return cast("MaxBatch", ask(["max-batch", *_job(options), os.fspath(model)], timeout))


def table(models: Model | Sequence[Model], *, timeout: float | None = None, **options: Unpack[JobOptions]) -> Table:
    """The largest batches of models x number formats x cards.

    Raises:
        FitCheckError: There is no answer, or a cell of it is unknown: then ``answer`` has the others.
        FitCheckTimeout: There was none in time.
        TypeError: There is no such option.
    """
    listed = [models] if isinstance(models, (str, os.PathLike)) else models
    words = ["table", *_job(options), *(os.fspath(model) for model in listed)]
    return cast("Table", ask(words, timeout))


def _job(options: Any) -> list[str]:
    """The options of a job as words of a command line."""
    for name in options:
        if name not in JobOptions.__annotations__:
            known = ", ".join(JobOptions.__annotations__)
            raise TypeError(f"there is no option {name!r}; the options are {known}")
    image = options.get("image")
    if isinstance(image, tuple):
        options = {**options, "image": "x".join(map(str, image))}
    return _words(options)


def _words(options: dict[str, Any]) -> list[str]:
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
            continue
        values: list[Any] = [value] if isinstance(value, (str, int)) else list(value)
        if name in _WITH_COMMAS:
            values = [",".join(values)]
        # With `=` a value that begins with a dash is no option.
        words += [f"{flag}={value}" for value in values]
    return words
