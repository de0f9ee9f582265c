"""Waits for the program to import PyTorch, and then installs what records or measures it.

Until then nothing happens.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence

from . import services, settings

_After = Callable[[types.ModuleType], None]


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, and then calls a function with it."""

    def __init__(self, loader: importlib.abc.Loader, after: _After) -> None:
        self._loader = loader
        self._after = after

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        # From here on the module has the loader that it would have had.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._after(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function after the first import of a module."""

    def __init__(self) -> None:
        self.waiting: dict[str, _After] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module for which a function waits, and wrap its loader."""
        after = self.waiting.get(fullname)
        if after is None:
            return None

        def once(module: types.ModuleType) -> None:
            # A program may look for a module long before it imports it (importlib.util.find_spec).
            if self.waiting.pop(fullname, None) is not None:
                after(module)

        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, once)
                return spec
        return None

    def call(self, name: str, after: _After) -> None:
        """Call the function once the module is there, which may be now."""
        module = sys.modules.get(name)
        if module is not None:
            after(module)
        else:
            self.waiting[name] = after


imports = AfterImport()


def start() -> None:
    """Wait for PyTorch."""
    services.switch_off()
    sys.meta_path.insert(0, imports)
    imports.call("torch", _install)


def _install(torch: types.ModuleType) -> None:
    if settings.from_environment().measure:
        from . import measure

        measure.install(imports)
    else:
        from . import install

        install.install(imports)
