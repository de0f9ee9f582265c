"""The person's own script: which of its lines is running, and where it failed."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from types import FrameType, TracebackType
from typing import Any

from . import network

_HERE = os.path.dirname(os.path.abspath(__file__))
_FOREIGN = tuple(
    {
        os.path.abspath(path)
        for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
        if (path := sysconfig.get_paths().get(name))
    }
    | {os.path.dirname(_HERE)}
)


def _is_own(filename: str) -> bool:
    """Whether the file is the person's, and not of a package, the standard library or this recorder."""
    if filename.startswith("<"):
        return False
    path = os.path.abspath(filename)
    return not path.startswith(_FOREIGN) and "site-packages" not in path


def running_line() -> str | None:
    """`file:line` of the innermost frame of the person's own code in this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_own(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def is_own(frame: FrameType) -> bool:
    """Whether the frame runs the person's own code."""
    return _is_own(frame.f_code.co_filename)


def failure(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> dict[str, Any]:
    """What the last line says of an error: its type, message and the person's own line, and a hint if there is one."""
    file, line = None, None
    for entry in traceback.extract_tb(trace):
        if _is_own(entry.filename):
            file, line = entry.filename, entry.lineno
    text = "".join(traceback.format_exception(kind, error, trace))
    return {
        "type": kind.__name__,
        "message": str(error),
        "file": file,
        "line": line,
        "traceback": text[-8000:],
        "hint": network.hint(error) or _hint(error),
    }


def _hint(error: BaseException) -> str | None:
    """What helps against an error that comes before the program is on the card."""
    if isinstance(error, EOFError) and str(error) == "EOF when reading a line":
        return "the program has no terminal to ask at: pass what it asks for as an option, or through a pipe"
    return None
