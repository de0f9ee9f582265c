"""Puts the recorder into a PyTorch that has just been imported."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from typing import Any

import torch

from . import endings, forks, names, settings, streams
from .bootstrap import AfterImport


def install(imports: AfterImport) -> None:
    """Install everything; a PyTorch that lacks a name ends the program with an error."""
    try:
        names.check(torch.__version__)
    except names.UnsupportedTorchError as error:
        _refuse(str(error))
    # The driver finds no card, if there is one: C code reads this variable, the program's `os.environ` keeps its own.
    os.putenv("CUDA_VISIBLE_DEVICES", "")
    # PyTorch's compiler, which fake tensors import, must find the functions of torch.cuda as they were.
    importlib.import_module("torch._dynamo")

    _into_fake_tensors()
    from . import (
        card,
        compilers,
        ctc,
        distributed,
        foreach,
        large_weights,
        lbfgs,
        linear,
        memory_formats,
        moving,
        packages,
        plain_tensors,
        recurrent_layers,
        replicas,
        sdpa,
        stored_tensors,
        subclasses,
        synced_norms,
        tensor_types,
        unknown_numbers,
    )
    from .mode import CardMode
    from .recording import Recording

    options = settings.from_environment()
    recording = Recording(options)
    recording.current_stream = streams.current_number
    card.install(recording)
    mode = CardMode(recording)
    recording.storages.follow_resizes()
    foreach.install()
    plain_tensors.install(recording)
    sdpa.install(options.card)
    lbfgs.install(recording)
    linear.install()
    memory_formats.install(options.card)
    recurrent_layers.install()
    moving.install()
    compilers.install(recording)
    distributed.install(recording)
    replicas.install()
    synced_norms.install()
    large_weights.install(mode)
    stored_tensors.install(mode)
    tensor_types.install()
    subclasses.install(mode)
    unknown_numbers.install()
    ctc.install()
    recording.modules.install(mode.before_backward)
    recording.steps.updates.install()
    packages.install(imports, mode)
    _in_every_thread(mode)
    endings.follow(recording)
    forks.follow(recording)
    # `torch.tensor(values, device="cuda")` makes the tensor on the processor, and then moves it.
    torch._C._set_only_lift_cpu_tensors(True)
    mode.__enter__()


def _refuse(message: str) -> None:
    """Write the one line that says why nothing is recorded, and end the process."""
    import json

    from .stream import LineStream

    stream = LineStream(settings.from_environment())
    stream.write("hello", {"version": 1, "torch": torch.__version__, "argv": sys.argv})
    stream.write("bye", {"reason": "error", "steps": 0, "error": {
        "type": "UnsupportedTorchError", "message": message, "file": None, "line": None}})  # fmt: skip
    stream.close()
    print(json.dumps(message), file=sys.stderr)
    os._exit(2)


def _into_fake_tensors() -> None:
    """Make fake tensors of the card without a device that could be initialised, and answer the engine."""
    from torch._subclasses import fake_tensor

    from . import engine

    # A wrong shape is the program's error, which it prints itself.
    fake_tensor.log.setLevel(logging.CRITICAL + 1)
    fake_tensor.init_gpu_context = lambda device: None
    fake_tensor.FakeTensorMode.avoid_device_init = property(lambda mode: True)
    if engine.needs_answer():
        engine.install()


def _in_every_thread(mode: Any) -> None:
    """Dispatch modes are of one thread: enter this one in each that the program starts."""
    start = threading.Thread.start

    def start_with_mode(thread: threading.Thread) -> None:
        run = thread.run

        def run_with_mode() -> None:
            torch._C._set_only_lift_cpu_tensors(True)
            with mode:
                run()

        thread.run = run_with_mode  # type: ignore[method-assign]
        start(thread)

    threading.Thread.start = start_with_mode  # type: ignore[method-assign]
