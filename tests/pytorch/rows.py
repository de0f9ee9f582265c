"""Repeats rows that others measured on real GPUs, without a GPU: `python rows.py [ROW…]`.

The rows are those of vramcalc 0.1.2 (`estimator/torch/recorder/tests/data/vramcalc_a6000.jsonl`): 19 runs of language
models on an NVIDIA RTX A6000, bytes of `torch.cuda.max_memory_allocated()`. Each is recorded, and its peak is that of the
recorder's blocks. Prints a row of Markdown for each; the status is 1 if one is more than 0.05 % off. The Python that
runs this has torch with CUDA, transformers and peft.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RECORDER = Path(__file__).resolve().parents[2] / "estimator" / "torch" / "recorder"
TESTS = RECORDER / "tests"
TOLERANCE = 0.0005

sys.path.insert(0, str(TESTS))
from allocator import replay  # noqa: E402


def name_of(row: dict) -> str:
    """The row in a few words."""
    parts = [
        row["model"],
        "inference"
        if row["mode"] == "inference"
        else "LoRA"
        if row["lora_rank"]
        else "full",
    ]
    parts.append(
        "autocast"
        if row["mode"] == "train" and row["precision"] == "amp"
        else row["dtype"]
    )
    parts.append(row["attn_impl"])
    if row["grad_checkpoint"]:
        parts.append("checkpointing")
    return ", ".join(parts)


def recorded(number: int, folder: str) -> int:
    """The most bytes allocated at once since the job last reset its peaks."""
    lines = Path(folder) / "lines.jsonl"
    command = [
        sys.executable,
        "-m",
        "fit_check_recorder.dump",
        "--card",
        "a6000",
        "--steps",
        "1000",
    ]
    command += [
        "-o",
        str(lines),
        "--",
        str(TESTS / "jobs" / "language_model.py"),
        str(number),
    ]
    environment = dict(os.environ, PYTHONPATH=str(RECORDER))
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    _, peaks = replay(lines)
    return peaks[-1][0]


def main() -> int:
    rows = [
        json.loads(line)
        for line in (TESTS / "data" / "vramcalc_a6000.jsonl").read_text().splitlines()
    ]
    off = 0
    print("| row | A6000, bytes | recorded | difference | |")
    print("|---|---|---|---|---|")
    for number in map(int, sys.argv[1:] or range(len(rows))):
        row = rows[number]
        real = row["measured"]["total"]
        with tempfile.TemporaryDirectory() as folder:
            try:
                ours = recorded(number, folder)
            except RuntimeError as error:
                off += 1
                print(
                    f"| {number} {name_of(row)} | {real:,} | {error} | | |", flush=True
                )
                continue
        off += abs(ours / real - 1) > TOLERANCE
        change = (
            f"{ours - real:+,} | {100 * (ours / real - 1):+.3f} %"
            if ours != real
            else "0 |"
        )
        print(
            f"| {number} {name_of(row)} | {real:,} | {ours:,} | {change} |", flush=True
        )
    return int(off > 0)


sys.exit(main())
