"""Writes docs/performance.md: runs the release build and says what each run cost.

    cargo build --release && python3 .ci/performance.py target/release/fit-check > docs/performance.md

Takes about twenty minutes. Nothing else should run meanwhile; the load is said in the page.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else "target/release/fit-check"


def run(command, times=3, cached=False):
    """Wall time, processor time and peak memory of the whole process, each the median of so many runs.
    Unless `cached`, no answer is taken from the cache or put there."""
    kept = command.startswith(("estimate", "max-batch"))
    command = command.split() + ["--quiet"] + (["--no-cache"] if kept and not cached else [])
    runs = []
    for _ in range(times):
        start = time.monotonic()
        with open(os.devnull, "wb") as nothing:
            child = subprocess.Popen([PROGRAM, *command], stdout=nothing)
            _, status, used = os.wait4(child.pid, 0)
        if os.waitstatus_to_exitcode(status) == 2:
            sys.exit(f"{command} failed")
        runs.append((time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024))
    return [statistics.median(values) for values in zip(*runs)]


def cells(cost):
    """What a run cost, as cells of a table."""
    wall, processor, memory = cost
    return [f"{wall:.2f} s", f"{processor:.2f} s", f"{memory:.0f} MB"]


def table(header, rows):
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def answer(command):
    """The answer to a command, from its JSON."""
    output = subprocess.run([PROGRAM, *command.split(), "--format", "json"], capture_output=True)
    return json.loads(output.stdout)


COST = ["time", "processor", "memory"]
MOST_MEMORY = 200


def growing(what, commands):
    """A table of runs that differ in one thing."""
    return table([what, *COST], [[name, *cells(run(command))] for name, command in commands])


def required(name, cost, seconds, of="processor"):
    """A row of what must be reached."""
    wall, processor, memory = cost
    reached = (processor if of == "processor" else wall) <= seconds and memory <= MOST_MEMORY
    return [name, f"{seconds} s {of}", *cells(cost), "yes" if reached else "**no**"]


def requirements():
    """What must be reached, and what was."""
    zoo = "table --preset lambda-2020 --precision fp32 --precision mixed"
    most = "max-batch resnet-50 --gpu 24GB"
    run(most, times=1, cached=True)
    # The 24 GB are an A10. Each card is asked for once, since the second answer would be a kept one.
    others = [
        run(f"max-batch resnet-50 --gpu {name}", times=1, cached=True)
        for name in ("rtx-3060", "rtx-3060-ti", "a4000")
    ]
    others = [statistics.median(values) for values in zip(*others)]
    limits = {
        "estimate resnet-50 --batch 32 --optimizer adam": 1.5,
        "estimate bert-base --batch 32": 3,
        "estimate transformer-base --batch 16": 10,
        most: 2.5,
    }
    return [
        *[required(f"`{command}`", run(command), seconds) for command, seconds in limits.items()],
        required("the same question again", run(most, cached=True), 0.3, of="time"),
        required("another card with the same kernels after that", others, 1, of="time"),
        required(f"`{zoo}`", run(zoo, times=1), 240),
    ]


def networks():
    """Each network: its estimate, its largest batch, and how many times the former the latter takes."""
    rows = []
    for model in answer("models"):
        name = model["name"]
        estimate = run(f"estimate {name}", times=1)
        most = run(f"max-batch {name} --gpu 24GB", times=1)
        rows.append((name, estimate, most, most[1] / estimate[1]))
    return sorted(rows, key=lambda row: -row[2][1])


burn = answer("estimate resnet-20")["burn"]
switches = ", ".join(f"{key} {burn[key]}" for key in burn if key != "version").lower()
features = "" if burn["autotune"] else " --no-default-features"
size = os.path.getsize(PROGRAM) / 1e6

print(f"""# What does an answer cost?

`.ci/performance.py` wrote this page. Compare figures of one page: another machine took three times as long.

| | |
| --- | --- |
| machine | {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} when it began |
| program | {size:.0f} MB; burn {burn['version']}: {switches} |
| *time*, *processor* | of the whole process, the median of three runs (preset and networks: one) |
| *memory* | the peak resident set; must be below {MOST_MEMORY} MB |
| cache | empty, but where that is said |

```console
$ cargo build --release{features} && python3 .ci/performance.py > docs/performance.md
```

## What must be reached
""")
with tempfile.TemporaryDirectory() as folder:
    os.environ["FIT_CHECK_CACHE_DIR"] = folder
    print(table(["", "at most", *COST, "reached"], requirements()))

print("""## With the batch

`estimate resnet-50 --batch N`: the number of operations does not depend on it.
""")
print(growing("N", [(str(n), f"estimate resnet-50 --batch {n}") for n in (1, 8, 64, 512, 4096)]))

print("""## With the number of cards

`table resnet-50`: of the cards with the same kernels one is run, and the others are replayed.
""")
cards = [card["aliases"][0] for card in answer("gpus") if card["vendor"] == "NVIDIA"]
counts = (1, 4, 16, len(cards))
print(growing("cards", [
    (str(count), f"table resnet-50 --gpus {','.join(cards[:count])}") for count in counts
]))

zoo = networks()
twice = sum(times <= 2 for *_, times in zoo)
slowest = max(most[1] for _, _, most, _ in zoo)
largest = max(max(estimate[2], most[2]) for _, estimate, most, _ in zoo)
print(f"""## Every network

`estimate NAME` and `max-batch NAME --gpu 24GB`, each at its published recipe.

| must be | is |
| --- | --- |
| the largest batch takes at most twice the processor time of the estimate | {twice} of {len(zoo)} networks |
| the slowest largest batch takes at most 30 s of processor time | {slowest:.1f} s |
| each process takes at most {MOST_MEMORY} MB | {largest:.0f} MB |
""")
header = ["NAME", "estimate, processor", "memory", "max-batch, processor", "memory", "times"]
print(table(header, [
    [name, *cells(estimate)[1:], *cells(most)[1:], f"{times:.1f}"]
    for name, estimate, most, times in zoo
]))

print("""## Where the time goes

| part | how often | how long |
| --- | --- | --- |
| burn-fusion's search for what it can fuse | once for a training job | most of an estimate |
| a step | | 0.1 s (ResNet-50, 8,320 events) to 2 s (char-lm, 78,000), mostly CubeCL's search for a free slice |
| a run in which burn tunes | | once to twice a step |
| a replay for another card or batch | where the kernels are the same | a part of a step |

| command | runs |
| --- | --- |
| `estimate` | one in which burn tunes, one after it |
| `max-batch` | 2 and 3 samples, N and N + 1, in which burn tunes; N again without overwriting operands |
| `max-batch`, where 2 and 3 samples do not predict N | two batches near N besides |
| `table` | one process for each row; cards with the same kernels are replayed |""")
