"""The end of a process: its last line, however it ends, and no process that stays."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Any

from . import script
from .process_stream import ProcessStream

#: Other ranks that this one started, and for how many seconds it waits for their last lines.
_ranks: list[subprocess.Popen[Any]] = []
_PATIENCE = 60


def follow(stream: ProcessStream) -> None:
    """Write the last line however the program ends."""
    _follow_ranks()
    hook = sys.excepthook

    def on_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        interrupted = issubclass(kind, KeyboardInterrupt)
        failure = script.failure(kind, error, trace)
        if interrupted:
            # Where it came says nothing: most often in a frame of this package, of which nobody wants to know.
            hook(kind, error.with_traceback(None), None)
        else:
            hook(kind, error, trace)
        reason = "killed" if interrupted else "error"
        if failure["hint"]:
            # Most programs fetch their files before they come to the card.
            stream.open()
        stream.say_bye(reason, error=failure)

    sys.excepthook = on_error
    leave = os._exit

    def leave_at_once(status: int) -> None:
        stream.say_bye("exit", status=status)
        leave(status)

    os._exit = leave_at_once  # type: ignore[assignment]
    atexit.register(lambda: stream.say_bye("exit"))


def _follow_ranks() -> None:
    """Keep the ranks that the first one starts by itself, as Lightning's does: nobody else waits for them."""
    start = subprocess.Popen.__init__

    def init(process: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
        start(process, *args, **kwargs)
        if "LOCAL_RANK" in (kwargs.get("env") or ()):
            _ranks.append(process)

    subprocess.Popen.__init__ = init  # type: ignore[method-assign,assignment]


def _wait_for_ranks() -> None:
    """Let them end their own recordings, which they do after as many steps."""
    latest = time.monotonic() + _PATIENCE
    for rank in _ranks:
        try:
            rank.wait(max(0, latest - time.monotonic()))
        except subprocess.TimeoutExpired:
            return


def end_process() -> None:
    """End this process and the workers that it started, which load its data."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    if threading.current_thread() is threading.main_thread():
        # PyTorch's own handler raises an error in this thread when a worker is killed, and the program would go on.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    workers = multiprocessing.active_children()
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(timeout=1)
    _wait_for_ranks()
    os._exit(0)
