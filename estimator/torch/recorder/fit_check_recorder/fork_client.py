"""For development: ask a program that records each request in a fork (`forks`)."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from . import forks, settings
from .dump import device


@contextlib.contextmanager
def serving(program: pathlib.Path) -> Iterator[Callable[..., dict[str, int]]]:
    """Start `program` under the recorder.

    What it yields takes the arguments of a step, a card, the file for its lines and the number of steps, and
    returns how the fork ended.
    """
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        path = os.path.join(folder, "requests")
        unused = pathlib.Path(folder, "lines")
        listener.bind(path)
        listener.listen()
        environment = dict(
            os.environ,
            PYTHONPATH=str(pathlib.Path(__file__).resolve().parent.parent),
        )
        environment[settings.VARIABLE] = json.dumps({"file": str(unused), "device": device("rtx-3090")})
        environment[forks.VARIABLE] = path
        with subprocess.Popen([sys.executable, str(program)], env=environment, stderr=subprocess.DEVNULL) as process:
            connection, _ = listener.accept()
            with connection, connection.makefile("r") as answers:

                def ask(arguments: list[str], card: str, lines: str, steps: int | None = None) -> dict[str, int]:
                    asked = json.dumps({"file": lines, "device": device(card), "steps": steps})
                    request = json.dumps({"settings": asked, "arguments": arguments})
                    connection.sendall(request.encode() + b"\n")
                    return json.loads(answers.readline())

                yield ask
            if process.wait(timeout=30) != 0:
                raise RuntimeError(f"{program} ended with status {process.returncode}")
        if unused.exists():
            raise RuntimeError(f"{program} came to the card before it was asked to")
