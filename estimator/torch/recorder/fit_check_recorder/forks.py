"""A process that has imported what a step needs, and records each request in a fork of itself.

Most of the time of a recording goes into imports. A request is a line of JSON over a Unix socket: the settings of
the recorder as text, and the arguments of the step. The answer is a line with the exit status of the fork, or the
number of the signal that ended it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace

from . import settings
from .process_stream import ProcessStream

#: The variable with the path of the socket.
VARIABLE = "FIT_CHECK_REQUESTS"

_streams: list[ProcessStream] = []


def follow(stream: ProcessStream) -> None:
    """Keep the stream of this process, which a fork opens with the settings of its request."""
    _streams.append(stream)


def serve(prepare: Callable[[list[str]], None], step: Callable[[list[str]], None]) -> None:
    """Run the step in a fork for each request, until nobody asks any more. In a fork this returns after the step.

    What `prepare` does before is there for later requests, too.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(os.environ[VARIABLE])
    with connection, connection.makefile("r", encoding="utf-8") as requests:
        for line in requests:
            request = json.loads(line)
            prepare(request["arguments"])
            sys.stdout.flush()
            sys.stderr.flush()
            process = os.fork()
            if process == 0:
                break
            _, status = os.waitpid(process, 0)
            ended = os.waitstatus_to_exitcode(status)
            answer = {"status": ended} if ended >= 0 else {"signal": -ended}
            connection.sendall(json.dumps(answer).encode() + b"\n")
        else:
            return
    os.environ[settings.VARIABLE] = request["settings"]
    asked = settings.parse(request["settings"])
    for stream in _streams:
        known = stream.settings.card
        known.become(asked.card)
        stream.settings = replace(asked, card=known)
    sys.argv = [sys.argv[0], *request["arguments"]]
    step(request["arguments"])
