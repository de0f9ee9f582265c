"""For development: `python -m fit_check_recorder.dump [--card a6000] [--steps N] [-o FILE] -- SCRIPT ARGS…`.

Runs a script under the recorder and writes the lines into a file (`lines.jsonl`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

_GIB = 1 << 30

#: Name, capability, memory, multiprocessors, shared memory of a block: NVIDIA's data sheets.
CARDS = {
    "t4": ("Tesla T4", (7, 5), 15 * _GIB, 40, 65536),
    "a100": ("NVIDIA A100-SXM4-40GB", (8, 0), 40 * _GIB, 108, 166912),
    "rtx-3090": ("NVIDIA GeForce RTX 3090", (8, 6), 24 * _GIB, 82, 101376),
    "a6000": ("NVIDIA RTX A6000", (8, 6), 48 * _GIB, 84, 101376),
    "rtx-4090": ("NVIDIA GeForce RTX 4090", (8, 9), 24 * _GIB, 128, 101376),
    "h200": ("NVIDIA H200", (9, 0), 141 * _GIB, 132, 232448),
    "rtx-5090": ("NVIDIA GeForce RTX 5090", (12, 0), 32 * _GIB, 170, 101376),
}


def device(name: str) -> dict[str, object]:
    """The description of a card, as FIT_CHECK_RECORDER holds it."""
    title, capability, total, multiprocessors, shared = CARDS[name]
    return {
        "name": title,
        "capability": capability,
        "total_bytes": total,
        "multiprocessors": multiprocessors,
        "shared_bytes_per_block_optin": shared,
    }


def main() -> int:
    """Run the script; its exit status is ours."""
    parser = argparse.ArgumentParser(prog="fit_check_recorder.dump")
    parser.add_argument("--card", choices=CARDS, default="rtx-3090")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int)
    parser.add_argument("-o", "--output", default="lines.jsonl")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    output = os.path.abspath(options.output)
    if os.path.exists(output):
        os.remove(output)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(path for path in (package, environment.get("PYTHONPATH")) if path)
    environment["FIT_CHECK_RECORDER"] = json.dumps(
        {
            "file": output,
            "device": device(options.card),
            "devices": options.devices,
            "steps": options.steps,
        }
    )
    return subprocess.run([sys.executable, *command], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
