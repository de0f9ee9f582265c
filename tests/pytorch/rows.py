"""Repeats rows that others measured on real GPUs, without a GPU.

    python rows.py a6000|t4|a100|rtx-3090 [ROW…]

Each job is recorded, and its blocks are replayed in the allocator of the recorder's tests. The rows and their sources are in
`estimator/torch/recorder/tests/data`, the jobs in `estimator/torch/recorder/tests/jobs`. Prints a row of Markdown for
each, and what follows from them all. The status is 1 if a row cannot be recorded, or one of an A6000 is more than
0.05 % off. The Python that runs this has torch with CUDA, torchvision, transformers, peft and timm.
"""

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

RECORDER = Path(__file__).resolve().parents[2] / "estimator" / "torch" / "recorder"
TESTS = RECORDER / "tests"
DATA = TESTS / "data"

sys.path.insert(0, str(TESTS))
from allocator import MIB, OutOfMemory, replay  # noqa: E402

#: What a row of an A6000 may be off.
TOLERANCE = 0.0005
#: MiB that PyTorch's allocator can have on an RTX 3090: what `fit-check` takes for it, and what fits the rows best.
USABLE_3090 = (23654, 22500)


class NotRecorded(Exception):
    """A job failed under the recorder."""


@contextmanager
def recorded(card: str, script: str, *arguments: object) -> Iterator[Path]:
    """The recorder's lines of a job."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "lines.jsonl"
        command = [sys.executable, "-m", "fit_check_recorder.dump", "--card", card]
        command += ["--steps", "1000", "-o", str(lines), "--"]
        command += [str(TESTS / "jobs" / script), *map(str, arguments)]
        environment = dict(os.environ, PYTHONPATH=str(RECORDER))
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NotRecorded(done.stderr.strip().splitlines()[-1])
        yield lines


def scaled(one: list[list], other: list[list], steps: float) -> list[list] | None:
    """The lines that follow from those of two batches, so many times as far on; none if they make other calls."""
    kinds = [[line[0] for line in lines if line[0] in "afez"] for lines in (one, other)]
    if kinds[0] != kinds[1]:
        return None
    sizes = [line[2] for line in other if line[0] == "a"]
    births = iter(sizes)
    return [
        ["a", line[1], line[2] + int(steps * (next(births) - line[2])), *line[3:]]
        if line[0] == "a"
        else line
        for line in one
    ]


def json_rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def csv_rows(name: str) -> list[dict]:
    with (DATA / name).open() as file:
        return list(csv.DictReader(file))


def percent(ours: float, real: float) -> float:
    return 100 * (ours / real - 1)


def off_by(ours: int, real: int) -> str:
    if ours == real:
        return "0 |"
    return f"{ours - real:+,} | {percent(ours, real):+.3f} %"


def name_of(row: dict) -> str:
    """A row of an A6000 in a few words."""
    if row["mode"] == "inference":
        kind = "inference"
    else:
        kind = "LoRA" if row["lora_rank"] else "full"
    autocast = row["mode"] == "train" and row["precision"] == "amp"
    parts = [row["model"], kind, "autocast" if autocast else row["dtype"]]
    parts.append(row["attn_impl"])
    if row["grad_checkpoint"]:
        parts.append("checkpointing")
    return ", ".join(parts)


def a6000(numbers: list[int]) -> bool:
    """19 runs of language models: bytes of `torch.cuda.max_memory_allocated()`."""
    rows = json_rows("vramcalc_a6000.jsonl")
    print("| row | A6000, bytes | recorded | difference | |")
    print("|---|---|---|---|---|")

    def of(number: int) -> bool:
        real = rows[number]["measured"]["total"]
        with recorded("a6000", "language_model.py", number) as lines:
            # The benchmark resets the peaks before what it measures.
            ours = replay(lines)[1][-1][0]
        name = f"{number} {name_of(rows[number])}"
        print(f"| {name} | {real:,} | {ours:,} | {off_by(ours, real)} |", flush=True)
        return abs(ours / real - 1) <= TOLERANCE

    return each(numbers or range(len(rows)), of)


def t4(numbers: list[int]) -> bool:
    """Eight training steps: most allocated and most reserved in the second step."""
    rows = json_rows("torch_preflight_t4.jsonl")
    print("| row | allocated, T4, MiB | recorded | | reserved, T4 | recorded | |")
    print("|---|---|---|---|---|---|---|")
    errors = []

    def of(number: int) -> bool:
        row = rows[number]
        real = row["measured"]["allocated"], row["measured"]["reserved"]
        with recorded("t4", "fine_tuning.py", number) as lines:
            ours = replay(lines)[1][-1]
        pairs = list(zip(ours, real, strict=True))
        errors.append([percent(*pair) for pair in pairs])
        cells = [
            f"{of / MIB:,.1f} | {our / MIB:,.1f} | {percent(our, of):+.2f} %"
            for our, of in pairs
        ]
        name = f"{number} {row['model']}, batch {row['batch']}, {row['size']}"
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        return True

    well = each(numbers or range(len(rows)), of)
    for what, found in zip(("allocated", "reserved"), zip(*errors), strict=True):
        print(f"\n{what}: {spread(found)}")
    return well


def a100(numbers: list[int]) -> bool:
    """Memory that a monitor saw in use on the device, while timm's train.py trained 24 networks."""
    rows = csv_rows("timm_a100.csv")
    print("| row | device, A100, MiB | reserved, recorded | rest |")
    print("|---|---|---|---|")
    found: dict[int, tuple[str, float, float]] = {}
    kept: dict[str, dict[int, list[list]]] = {}

    def lines_of(model: str, batch: int) -> list[list]:
        """Two batches tell the others, if they make the same calls."""
        known = kept.setdefault(model, {})
        if len(known) >= 2:
            (one, first), (other, second), *_ = known.items()
            lines = scaled(first, second, (batch - one) / (other - one))
            if lines is not None:
                return lines
        with recorded("a100", "timm_training.py", "a100", model, batch) as path:
            texts = path.read_text().splitlines()
        known[batch] = [json.loads(text) for text in texts]
        return known[batch]

    def of(number: int) -> bool:
        row = rows[number]
        real, batch = float(row["device_used_MiB"]), int(row["batch"])
        lines = lines_of(row["model"], batch)
        with tempfile.NamedTemporaryFile("w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            peaks = replay(file.name)[1]
        ours = max(reserved for _, reserved in peaks) / MIB
        found[number] = row["model"], real, ours
        name = f"{number} {row['model']}, batch {batch}"
        print(
            f"| {name} | {real:,.0f} | {ours:,.0f} | {real - ours:+,.0f} |", flush=True
        )
        return True

    well = each(numbers or range(len(rows)), of)
    constant = statistics.median(real - ours for _, real, ours in found.values())
    print(
        f"\nwith {constant:,.0f} MiB for all that is not PyTorch's allocator (fitted):"
    )
    print(spread([percent(ours + constant, real) for _, real, ours in found.values()]))
    errors = []
    for model, real, ours in found.values():
        others = [r - o for name, r, o in found.values() if name != model]
        if others:
            errors.append(percent(ours + statistics.median(others), real))
    if errors:
        print("with the constant that fits the other networks:")
        print(spread(errors))
    return well


def rtx_3090(numbers: list[int]) -> bool:
    """The largest batch that trained of those that timm's benchmark.py tried."""
    rows = csv_rows("timm_rtx3090.csv")
    print("| row | ran | failed | " + " | ".join(map(str, USABLE_3090)) + " |")
    print("|---|---|---|" + "---|" * len(USABLE_3090))
    missed = [0] * len(USABLE_3090)

    def fits(row: dict, batch: str, usable: int) -> bool:
        job = row["model"], batch, row["img"], row["layout"]
        if job not in kept:
            with recorded("rtx-3090", "timm_training.py", "rtx-3090", *job) as lines:
                kept[job] = lines.read_text()
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(kept[job])
            file.flush()
            try:
                replay(file.name, usable * MIB)
            except OutOfMemory:
                return False
        return True

    kept: dict[tuple, str] = {}

    def of(number: int) -> bool:
        row = rows[number]
        ran, failed = row["largest_batch_that_ran"], row["next_tried_that_failed"]
        cells = []
        for index, usable in enumerate(USABLE_3090):
            wrong = []
            if not fits(row, ran, usable):
                wrong.append(f"{ran} does not fit")
            if failed and fits(row, failed, usable):
                wrong.append(f"{failed} fits")
            missed[index] += bool(wrong)
            cells.append(", ".join(wrong) or "right")
        kept.clear()
        name = f"{number} {row['model']}, {row['img']} px, {row['layout']}"
        print(f"| {name} | {ran} | {failed} | {' | '.join(cells)} |", flush=True)
        return True

    well = each(numbers or range(len(rows)), of)
    for usable, count in zip(USABLE_3090, missed, strict=True):
        print(f"\nwith {usable:,} MiB: {count} missed")
    return well


def spread(errors: list[float]) -> str:
    """Percent, in a line."""
    sizes = [abs(error) for error in errors]
    return (
        f"{len(errors)} rows, in the mean {statistics.fmean(sizes):.2f} %, median "
        f"{statistics.median(sizes):.2f} %, from {min(errors):+.2f} to {max(errors):+.2f} %"
    )


def each(numbers: list[int] | range, of: Callable[[int], bool]) -> bool:
    """Whether all rows are as they should be."""
    well = True
    for number in numbers:
        try:
            well &= of(number)
        except NotRecorded as error:
            well = False
            print(f"| {number} | {error} |", flush=True)
    return well


TABLES = {"a6000": a6000, "t4": t4, "a100": a100, "rtx-3090": rtx_3090}

if __name__ == "__main__":
    card, *numbers = sys.argv[1:] or ["a6000"]
    sys.exit(not TABLES[card](list(map(int, numbers))))
