"""What single packages need. Each part runs when its package is imported."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from . import bitsandbytes_weights, compilers, other_optimizers, unknown_numbers

if TYPE_CHECKING:
    from .bootstrap import AfterImport
    from .mode import CardMode


def install(imports: AfterImport, mode: CardMode) -> None:
    """Wait for the packages."""
    recording = mode.recording
    imports.call("triton.runtime.jit", compilers.replace_triton(recording))
    imports.call("triton.runtime.driver", compilers.replace_driver)
    imports.call("yaml.representer", unknown_numbers.represent)
    imports.call("transformers.utils.import_utils", _transformers)
    imports.call("bitsandbytes.cextension", bitsandbytes_weights.launches(recording))
    imports.call("bitsandbytes.nn.modules", bitsandbytes_weights.weights(mode))
    imports.call("bitsandbytes.functional", bitsandbytes_weights.managed_memory)
    other_optimizers.install(imports, recording.steps.updates)
    compilers.stand_in_flash_attention()


def _transformers(module: types.ModuleType) -> None:
    """Masks that are skipped for real tensors are built for fake ones: say that none is fake."""
    if hasattr(module, "is_fake_tensor"):
        module.is_fake_tensor = lambda tensor: False
