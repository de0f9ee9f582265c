"""The first file that Python runs: it starts the recorder, and then the `sitecustomize` that it hides.

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


if os.environ.get("FIT_CHECK_RECORDER"):
    from fit_check_recorder import bootstrap

    bootstrap.start()
_run_hidden_sitecustomize()
