"""Compares what `fit-check run` says with what `measure.py` measured on a GPU.

    python compare.py FIT_CHECK PAIRS GPU [JOB…]

FIT_CHECK is the program, PAIRS the file `pairs.jsonl` of `measure.py`, GPU the card's name in the catalogue. The Python that
runs this runs the jobs too, so its packages are to have the versions of the machine with the GPU. Prints a row of Markdown
for each job: most allocated, most reserved and least capacity in MiB.
"""

import json
import subprocess
import sys
from pathlib import Path

MIB = 2**20
JOBS = Path(__file__).resolve().parent / "jobs"


def recorded(fit_check: str, gpu: str, pair: dict) -> dict:
    """The answer of fit-check about a job of three steps."""
    script, *rest = pair["arguments"].split()
    steps = "3"
    if all(mark["phase"] != "optimizer" for mark in pair["marks"]):
        # On the GPU the gradients of each step were infinite, so the scaler made no update.
        steps, rest = "0", [*rest, "--skip-updates"]
    command = [fit_check, "run", "--gpu", gpu, "--steps", steps, "--format", "json"]
    command += ["--", sys.executable, str(JOBS / script), *rest]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        lines = [line for line in done.stderr.splitlines() if line.startswith("error")]
        raise RuntimeError(lines[0] if lines else done.stderr[-300:])
    return json.loads(done.stdout)["processes"][0]


def change(ours: float, real: float) -> str:
    return f"{real / MIB:,.1f} | {ours / MIB:,.1f} | {100 * (ours / real - 1):+.2f} %"


def main() -> None:
    fit_check, pairs, gpu, *only = sys.argv[1:]
    print("| job | allocated, GPU | fit-check | | reserved, GPU | fit-check | |")
    print("|---|---|---|---|---|---|---|")
    for line in Path(pairs).read_text().splitlines():
        pair = json.loads(line)
        expandable = "expandable_segments:True" in str(pair["settings"])
        skipped = pair["settings"].get("cap") or not pair.get("marks") or expandable
        if skipped or (only and pair["job"] not in only):
            continue
        try:
            peak = recorded(fit_check, gpu, pair)["peak"]
        except (RuntimeError, json.JSONDecodeError) as error:
            print(f"| {pair['job']} | {error} | | | | | |", flush=True)
            continue
        real = pair["marks"][-1]
        allocated = change(peak["allocated_bytes"], real["allocated_peak"])
        reserved = change(peak["reserved_bytes"], real["reserved_peak"])
        print(f"| {pair['job']} | {allocated} | {reserved} |", flush=True)


main()
