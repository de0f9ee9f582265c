"""The first file that Python runs: it starts the recorder, then the `sitecustomize` that it hides.

The folder of this file stands first in PYTHONPATH. Nothing of PyTorch is imported here.
"""

import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_hidden_sitecustomize() -> None:
    """Run the `sitecustomize` that Python would have found without this one."""
    for folder in sys.path:
        path = os.path.join(folder or ".", "sitecustomize.py")
        if os.path.abspath(folder or ".") == _HERE or not os.path.isfile(path):
            continue
        spec = importlib.util.spec_from_file_location("_hidden_sitecustomize", path)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        return


def _leave_counting_driver() -> None:
    """Start this program anew without the counting CUDA driver: PyTorch is not to see it.

    The loader read LD_LIBRARY_PATH when the process began, so only a new one forgets it.
    """
    config = os.environ.pop("FIT_CHECK_COUNTING_DRIVER", None)
    if not config or not sys.executable:
        return
    folder = os.path.dirname(config)
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    os.environ["LD_LIBRARY_PATH"] = ":".join(path for path in libraries if path != folder)
    if os.environ.get("CUDA_PATH") == folder:
        del os.environ["CUDA_PATH"]
    os.execve(sys.executable, sys.orig_argv, os.environ)


if os.environ.get("FIT_CHECK_RECORDER"):
    _leave_counting_driver()
    from fit_check_recorder import bootstrap

    bootstrap.start()
_run_hidden_sitecustomize()
