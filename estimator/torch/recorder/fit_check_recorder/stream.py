"""The lines that leave this process: one JSON array a line, over a Unix socket or into a file.

Frees that follow each other commute in an allocator. They are held back until something else happens and
then written in the order of their blocks, so that a program writes the same lines each time.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import Any

from .settings import Settings

_FLUSH_BYTES = 1 << 16


class LineStream:
    """Where lines go. Each thread of the program may write."""

    def __init__(self, settings: Settings) -> None:
        self._lock = threading.RLock()
        self._texts: dict[str, int] = {}
        self._pending: list[str] = []
        self._pending_bytes = 0
        self._frees: list[int] = []
        self._connection: socket.socket | None = None
        self._file: int | None = None
        if settings.socket:
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._connection.connect(settings.socket)
        elif settings.file:
            self._file = _own_file(settings.file)

    def intern(self, text: str) -> int:
        """The number of a text; the first time a line says which text it is."""
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = len(self._texts)
            self.write("n", known, text)
        return known

    def write(self, *line: Any) -> None:
        """Write one line."""
        self.write_text(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")

    def write_text(self, text: str) -> None:
        """Write a line that is JSON already, after the frees that were held back."""
        with self._lock:
            if self._frees:
                frees = self._frees
                self._frees = []
                frees.sort()
                for block in frees:
                    self._append(f'["f",{block}]\n')
            self._append(text)

    def free(self, block: int) -> None:
        """Write the death of a block, in order among the frees that come without a break."""
        self._frees.append(block)

    def _append(self, text: str) -> None:
        self._pending.append(text)
        self._pending_bytes += len(text)
        if self._pending_bytes > _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what is pending. A reader that has gone ends this process: nobody waits for it."""
        with self._lock:
            data = "".join(self._pending).encode()
            self._pending = []
            self._pending_bytes = 0
            try:
                if self._connection is not None:
                    self._connection.sendall(data)
                elif self._file is not None:
                    os.write(self._file, data)
            except (BrokenPipeError, ConnectionError):
                os._exit(1)

    def close(self) -> None:
        """Send what is pending and close."""
        self.flush()
        if self._connection is not None:
            self._connection.close()
        elif self._file is not None:
            os.close(self._file)
        self._connection = self._file = None

    def abandon(self) -> None:
        """Close without a line: the stream belongs to the parent of this forked process."""
        if self._connection is not None:
            self._connection.detach()
        self._connection = self._file = None
        self._pending = []
        self._frees = []


def _own_file(path: str) -> int:
    """A file that no other process writes: ranks come here at the same time."""
    flags = os.O_WRONLY | os.O_CREAT
    try:
        return os.open(path, flags | os.O_EXCL, 0o644)
    except FileExistsError:
        return os.open(f"{path}.{os.getpid()}", flags | os.O_TRUNC, 0o644)
