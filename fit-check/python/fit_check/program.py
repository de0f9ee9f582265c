"""Finds the program, runs it, and reads its JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

#: Exit statuses that come with an answer: the job fits, or it does not.
_ANSWERED = (0, 1)


class FitCheckError(Exception):
    """fit-check cannot tell.

    ``hint`` says what to do, where there is a hint. ``answer`` is the JSON without what is unknown, if there is any.
    """

    def __init__(self, message: str, hint: str | None = None, answer: Any = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.answer = answer

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} (hint: {self.hint})" if self.hint else message


class FitCheckTimeout(FitCheckError, TimeoutError):
    """There was no answer in time."""


def find_program() -> str:
    """The path of the program: the one that was installed with this module, or else the first in ``PATH``.

    Raises:
        FitCheckError: There is none.
    """
    windows = sys.platform == "win32"
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", scheme="nt_user" if windows else "posix_user"),
        # `pip install --target` puts it beside the module.
        str(Path(__file__).parent.parent / "bin"),
    ]
    for folder in folders:
        path = Path(folder, "fit-check.exe" if windows else "fit-check")
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    if found := shutil.which("fit-check"):
        return found
    raise FitCheckError(
        "the program fit-check is not there",
        hint="install the wheel again, or put the folder of fit-check into PATH",
    )


def ask(words: list[str], timeout: float | None) -> Any:
    """The JSON that ``fit-check WORDS`` prints.

    Raises:
        FitCheckError: There is no answer.
    """
    command = [find_program(), *words, "--format", "json", "--quiet"]
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise FitCheckTimeout(f"no answer within {timeout:g} seconds", hint="give it more time: timeout=") from None
    stdout, stderr = (text.decode("utf-8", "replace") for text in (ended.stdout, ended.stderr))
    answer = json.loads(stdout) if stdout.lstrip().startswith(("{", "[")) else None
    if ended.returncode in _ANSWERED and answer is not None:
        return answer
    message, hint = _read_error(stderr)
    if message is None:
        known = "ended without an answer" if answer is None else "does not know a part of the answer"
        message = f"fit-check {known} (exit status {ended.returncode})"
    raise FitCheckError(message, hint, answer)


def _read_error(stderr: str) -> tuple[str | None, str | None]:
    """What follows ``error:`` and ``hint:``, with the lines that continue it."""
    said: dict[str, str] = {}
    current = None
    for line in stderr.splitlines():
        label, colon, text = line.partition(":")
        if colon and label in ("error", "hint"):
            current = None if label in said else label
            if current:
                said[current] = text.strip()
        elif current and line.strip():
            said[current] += "\n" + line.strip()
        else:
            current = None
    return said.get("error"), said.get("hint")
