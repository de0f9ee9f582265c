"""Every private name of PyTorch that the recorder uses, tested at start.

A version of PyTorch without one of them gets an error that names both, and no figure.
"""

from __future__ import annotations

import importlib
from typing import Any

#: The oldest and the newest version (major, minor) that was tried.
OLDEST, NEWEST = (2, 10), (2, 15)

_NAMES = [
    "torch._C._ensureCUDADeviceGuardSet",
    "torch._C._set_only_lift_cpu_tensors",
    "torch._C._current_autograd_node",
    "torch._C._storage_Use_Count",
    "torch._C._get_accelerator",
    "torch._C._accelerator_getAccelerator",
    "torch._C._accelerator_getDeviceIndex",
    "torch._C._accelerator_exchangeDevice",
    "torch._C._conv_determine_backend_memory_format",
    "torch._C._ConvBackend.CudaDepthwise2d",
    "torch._C._functorch.get_unwrapped",
    "torch._C._functorch.is_functorch_wrapped_tensor",
    "torch._C._functorch.peek_interpreter_stack",
    "torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack",
    "torch._C._nn.scaled_dot_product_attention",
    "torch._C._disabled_torch_dispatch_impl",
    "torch.Tensor._use_count",
    "torch.UntypedStorage._cdata",
    "torch.UntypedStorage.to",
    "torch._utils._rebuild_tensor",
    "torch._is_all_true",
    "torch.autograd._get_sequence_nr",
    "torch.autograd._engine_run_backward",
    "torch.autograd.graph._engine_run_backward",
    "torch._subclasses.fake_tensor.FakeTensor",
    "torch._subclasses.fake_tensor.FakeTensorMode.avoid_device_init",
    "torch._subclasses.fake_tensor.init_gpu_context",
    "torch._subclasses.fake_tensor.DynamicOutputShapeException",
    "torch._subclasses.fake_tensor.DataDependentOutputException",
    "torch._library.custom_ops.OPDEFS",
    "torch._ops.OpOverload._can_decompose",
    "torch._ops.OpOverload.decompose",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch.utils._pytree.tree_map_only",
    "torch.optim.optimizer._foreach_supported_types",
    "torch.optim.optimizer.register_optimizer_step_pre_hook",
    "torch.optim.optimizer.register_optimizer_step_post_hook",
    "torch.utils._foreach_utils._foreach_supported_types",
    "torch.utils._foreach_utils._has_foreach_support",
    "torch.cuda._lazy_init",
    "torch.cuda._exchange_device",
    "torch.cuda._maybe_exchange_device",
    "torch.cuda._utils._get_device_index",
    "torch.cuda.amp.common.amp_definitely_not_available",
    "torch.accelerator.current_accelerator",
    "torch.accelerator.current_device_index",
    "torch.nn.Module._apply",
    "torch.testing._internal.distributed.fake_pg.FakeStore",
    "torch.ops.aten._scaled_dot_product_flash_attention",
    "torch.ops.aten._scaled_dot_product_efficient_attention",
    "torch.ops.aten._scaled_dot_product_cudnn_attention",
]


class UnsupportedTorchError(RuntimeError):
    """This version of PyTorch has not what the recorder needs."""


def _exists(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def missing(names: list[str] = _NAMES) -> list[str]:
    """The names that this PyTorch lacks."""
    return [name for name in names if not _exists(name)]


def check(version: str) -> None:
    """Raise UnsupportedTorchError if a name is missing, or the version is too old to have been tried."""
    number = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    lacking = missing()
    if number < OLDEST:
        raise UnsupportedTorchError(
            f"PyTorch {version} is too old for fit-check, which needs"
            f" {OLDEST[0]}.{OLDEST[1]} or newer" + (f" (it lacks {', '.join(lacking)})" if lacking else "")
        )
    if lacking:
        raise UnsupportedTorchError(f"PyTorch {version} lacks {', '.join(lacking)}, which fit-check needs")
