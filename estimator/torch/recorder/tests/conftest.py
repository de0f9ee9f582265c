"""Runs scripts under the recorder and reads their lines."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

FOLDER = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(FOLDER))
sys.path.insert(0, str(FOLDER / "tests"))

from fit_check_recorder.dump import device  # noqa: E402


class Run:
    """What a recorded script left behind."""

    def __init__(self, completed, path):
        self.status = completed.returncode
        self.output = completed.stdout
        self.errors = completed.stderr
        self.path = path
        self.lines = []
        if path.exists():
            self.lines = [json.loads(line) for line in path.read_text().splitlines()]

    def of(self, kind):
        return [line for line in self.lines if line[0] == kind]

    @property
    def bye(self):
        return self.of("bye")[-1][1]

    def text(self, number):
        return next(line[2] for line in self.of("n") if line[1] == number)

    def births(self):
        """(bytes, operator, kind) of each allocation."""
        return [(line[2], self.text(line[3]), line[6]) for line in self.of("a")]

    def approximations(self):
        return {(line[1], line[2].split(" at ")[0]) for line in self.of("x")}


@pytest.fixture
def record(tmp_path):
    def run(script, *arguments, card="rtx-3090", steps=None, devices=1, measure=False, environment=None):
        """Record or measure a script, given as text or as a path."""
        if isinstance(script, pathlib.Path):
            path = script
        else:
            path = tmp_path / "script.py"
            path.write_text(textwrap.dedent(script))
        lines = tmp_path / "lines.jsonl"
        lines.unlink(missing_ok=True)
        settings = {"file": str(lines), "device": device(card), "steps": steps, "devices": devices, "measure": measure}
        completed = subprocess.run(
            [sys.executable, str(path), *map(str, arguments)],
            cwd=tmp_path,
            env=dict(
                os.environ,
                PYTHONPATH=str(FOLDER),
                FIT_CHECK_RECORDER=json.dumps(settings),
                **(environment or {}),
            ),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Run(completed, lines)

    return run
