"""What single packages need. Each part runs when its package is imported."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from . import compilers

if TYPE_CHECKING:
    from .bootstrap import AfterImport
    from .mode import CardMode


def install(imports: AfterImport, mode: CardMode) -> None:
    """Wait for the packages."""
    recording = mode.recording
    imports.call("triton.runtime.jit", compilers.replace_triton(recording))
    imports.call("triton.runtime.driver", compilers.replace_driver)
    imports.call("transformers.utils.generic", _transformers)
    compilers.stand_in_flash_attention()


def _transformers(module: types.ModuleType) -> None:
    """Masks that are skipped for real tensors are built for fake ones: say that none is."""
    for name in ("is_fake_tensor", "is_torch_fx_proxy"):
        if hasattr(module, name):
            setattr(module, name, lambda tensor: False)
