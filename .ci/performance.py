"""Writes docs/performance.md: runs the release build and says what each run cost.

    cargo build --release && python3 .ci/performance.py target/release/fit-check > docs/performance.md

Takes about twenty minutes. Nothing else should run meanwhile; the load is said in the page.
"""
import datetime
import json
import os
import pathlib
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


def row(name, command, limit=None, **how):
    """A row of a table."""
    return [name] + ([limit] if limit else []) + cells(run(command, **how))


def table(header, rows):
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def answer(command):
    """The answer to a command, from its JSON."""
    output = subprocess.run([PROGRAM, *command.split(), "--format", "json"], capture_output=True)
    return json.loads(output.stdout)


COST = ["time", "processor", "memory"]


def growing(what, commands):
    """A table of runs that differ in one thing."""
    return table([what, *COST], [row(name, command) for name, command in commands])


burn = answer("estimate resnet-20")["burn"]
switches = ", ".join(f"{key} {burn[key]}" for key in burn if key != "version").lower()
known = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True).stdout
load = os.getloadavg()[0]
features = "" if burn["autotune"] else " --no-default-features"

size = os.path.getsize(PROGRAM) / 1e6
# What is not reached, and what else the figures do not say. To be written anew with them.
notes = (pathlib.Path(__file__).parent / "performance_notes.md").read_text()

print(f"""# Performance

Made by `.ci/performance.py` on {datetime.date.today()}: the program that the README builds, whole
processes, the median of three runs each (the zoo and the preset: one). {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores; when it began,
{load:.1f} processes were running or waiting for a core, so *time* may be longer than on an idle machine;
*processor* is the time that the process had of all cores. *memory* is the peak resident set. burn
{burn['version']}: {switches}. The program has {size:.0f} MB. Nothing is in the cache, but where that is said.

{notes}
```console
$ cargo build --release{features} && python3 .ci/performance.py > docs/performance.md
```

Beside it: PyTorch's own tracker of memory needs 6.7 s of processor time for ResNet-50 at batch 32, and 13 s
for BERT-base (measured for issue 8 of this project; the machine was another one).

## What must be reached
""")
with tempfile.TemporaryDirectory() as folder:
    os.environ["FIT_CHECK_CACHE_DIR"] = folder
    preset = "table --preset lambda-2020 --precision fp32 --precision mixed"
    most = "max-batch resnet-50 --gpu 24GB"
    run(most, times=1, cached=True)
    rows = [
        row(f"`{command}`", command, f"≤ {limit} s of processor")
        for command, limit in [
            ("estimate resnet-50 --batch 32 --optimizer adam", "1.5"),
            ("estimate bert-base --batch 32", "3"),
            ("estimate transformer-base --batch 16", "10"),
            (most, "2.5"),
        ]
    ]
    rows.append(row("the same question again", most, "≤ 0.3 s", cached=True))
    # The 24 GB are an A10. Each card is asked for once, since the second answer would be a kept one.
    others = [
        run(f"max-batch resnet-50 --gpu {name}", times=1, cached=True)
        for name in ("rtx-3060", "rtx-3060-ti", "a4000")
    ]
    others = [statistics.median(values) for values in zip(*others)]
    rows.append(["another card with the same kernels after that", "≤ 1 s", *cells(others)])
    rows.append(row(f"`{preset}`", preset, "≤ 240 s of processor", times=1))
print(table(["", "must be", *COST], rows))

print("""## With the batch

`estimate resnet-50 --batch N`: the number of operations does not depend on it.
""")
print(growing("N", [(str(n), f"estimate resnet-50 --batch {n}") for n in (1, 8, 64, 512, 4096)]))

print("""## With the number of cards

`table resnet-50` on so many cards of the catalogue: of the cards with the same kernels one is run,
and the others are replayed. The answer is another batch on each card, so that each takes replays of
its own.
""")
cards = [card["aliases"][0] for card in answer("gpus") if card["vendor"] == "NVIDIA"]
counts = (1, 4, 16, len(cards))
print(growing("cards", [
    (str(count), f"table resnet-50 --gpus {','.join(cards[:count])}") for count in counts
]))

print("""## The whole zoo

`estimate NAME` and `max-batch NAME --gpu 24GB`, each at its published recipe, by processor time. The
largest batch must take no more than twice the processor time of the estimate, and no more than 30 s for
the slowest; all must be below 200 MB.
""")
zoo = []
for model in answer("models"):
    name = model["name"]
    estimate = run(f"estimate {name}", times=1)
    most = run(f"max-batch {name} --gpu 24GB", times=1)
    zoo.append((most[1], [name, *cells(estimate), *cells(most), f"{most[1] / estimate[1]:.1f}"]))
zoo.sort(key=lambda entry: -entry[0])
header = ["NAME", "estimate", "processor", "memory", "max-batch", "processor", "memory", "times"]
print(table(header, [cells for _, cells in zoo]))

print("""## Where the time goes

In an estimate that fuses, most of it is burn-fusion's search for what it can fuse, which is made once for a
training job. After it a step costs a tenth of a second for ResNet-50 (8,320 events) and some two seconds for the
largest (char-lm: 78,000), most of which is CubeCL's own search for a free slice; the run in which kernels are
tuned once to twice that. `estimate` makes one run of each kind. `max-batch` makes five runs, in four of which kernels are
tuned (2, 3, N and N + 1); N runs once more without overwriting some operands. That is more than twice an estimate wherever the search for fusion is quick. That N also fits
where the device's thread is behind the program is seen in replays.

Where the run of N does not make the calls that 2 and 3 samples predict, and N + 1 fits too (ViT, VGG-19, DCGAN),
two batches near N are tuned and run besides. With StyleGAN no two batches make the same calls, since some of its
kernels are chosen by the number of samples; the search then begins where the bytes in use of 2 and 3 samples say.

In the word and character models some 25 replays add to that: of the batches near the answer, and of larger ones, to see
whether one of those fits again.

In the preset each row has a process of its own, in which burn searches once for what it can fuse, whatever the card. Where
the kernels depend on the number of samples, every card takes steps of its own; the others are filled by replay.""")
