"""Code that a program compiles: torch.compile runs eagerly, and a launch of a Triton kernel does nothing.

A kernel of Triton writes into tensors that Python has allocated already. What it would write is unknown.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from . import script
from .recording import Recording


def install(recording: Recording) -> None:
    """Run compiled functions as they were written."""

    def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        # What a package decorates may never be called.
        if isinstance(model, torch.nn.Module) or script.is_own(sys._getframe(1)):
            recording.approximate_here("compile ran eagerly", "torch.compile")
        return model if model is not None else lambda function: function

    torch.compile = compile_

    def compile_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        recording.approximate_here("compile ran eagerly", "Module.compile")

    torch.nn.Module.compile = compile_module


def replace_triton(recording: Recording) -> Callable[[types.ModuleType], None]:
    """Make launches of Triton's kernels do nothing, once `triton.runtime.jit` is imported."""

    def replace(module: types.ModuleType) -> None:
        from triton.runtime import autotuner, jit

        def run(kernel: Any, *args: Any, **kwargs: Any) -> None:
            function = kernel
            while not hasattr(function, "__name__") and hasattr(function, "fn"):
                function = function.fn
            recording.approximate("kernel without data", getattr(function, "__name__", "triton"))

        jit.JITFunction.run = run
        autotuner.Autotuner.run = run
        autotuner.Heuristics.run = run

    return replace


def replace_driver(module: types.ModuleType) -> None:
    """Give Triton a driver that describes the card, so that programs may ask it for its target."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Described:
        """What `triton.runtime.driver.active` is asked for without a launch."""

        def get_current_target(self) -> Any:
            major, minor = torch.cuda.get_device_capability()
            return GPUTarget("cuda", major * 10 + minor, 32)

        def get_current_device(self) -> int:
            return torch.cuda.current_device()

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cuda", torch.cuda.current_device())

        def get_device_interface(self) -> Any:
            return torch.cuda

        def get_current_stream(self, device: int = 0) -> int:
            return 0

        def set_current_device(self, device: int) -> None:
            torch.cuda.set_device(device)

        @property
        def utils(self) -> Any:
            properties = torch.cuda.get_device_properties()
            return types.SimpleNamespace(
                get_device_properties=lambda device: {
                    "max_shared_mem": properties.shared_memory_per_block_optin,
                    "multiprocessor_count": properties.multi_processor_count,
                    "warpSize": 32,
                    "max_num_regs": 65536,
                }
            )

    driver.set_active(Described())


def stand_in_flash_attention() -> None:
    """An empty module for flash-attn's compiled part: its own fake implementations answer."""
    name = "flash_attn_2_cuda"
    if name not in sys.modules:
        sys.modules[name] = types.ModuleType(name)
