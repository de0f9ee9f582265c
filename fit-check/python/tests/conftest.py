"""A program in the place of fit-check, which says what it was asked and answers what a test wants."""

import json
import os
import sys

import pytest


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Lets `fit_check` find a program that prints `stdout` and `stderr`; returns what reads its words."""

    def install(stdout="{}", stderr="", status=0, seconds=0):
        words = tmp_path / "words.json"
        path = tmp_path / "fit-check"
        path.write_text(
            f"#!{sys.executable}\n"
            "import json, pathlib, sys, time\n"
            f"pathlib.Path({str(words)!r}).write_text(json.dumps(sys.argv[1:]))\n"
            f"time.sleep({seconds})\n"
            f"sys.stdout.write({stdout!r})\n"
            f"sys.stderr.write({stderr!r})\n"
            f"sys.exit({status})\n"
        )
        path.chmod(0o755)
        monkeypatch.setattr("fit_check.program.find_program", lambda: os.fspath(path))
        return lambda: json.loads(words.read_text())

    return install
