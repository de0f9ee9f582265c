"""Writes docs/performance.md: runs the release build and says what each run cost.

    cargo build --release && python3 .ci/performance.py target/release/fit-check > docs/performance.md

Takes a few minutes. Nothing else should run meanwhile; the load is said in the page.
"""
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else "target/release/fit-check"


def run(command):
    """Wall time, processor time and peak memory of the whole process, each the median of three."""
    runs = []
    for _ in range(3):
        start = time.monotonic()
        with open(os.devnull, "wb") as nothing:
            child = subprocess.Popen([PROGRAM, *command.split(), "--quiet"], stdout=nothing)
            _, status, used = os.wait4(child.pid, 0)
        if os.waitstatus_to_exitcode(status) == 2:
            sys.exit(f"{command} failed")
        runs.append((time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024))
    return [statistics.median(values) for values in zip(*runs)]


def row(name, command, limit=None):
    """A row of a table."""
    wall, processor, memory = run(command)
    cells = [name] + ([limit] if limit else [])
    return cells + [f"{wall:.2f} s", f"{processor:.2f} s", f"{memory:.0f} MB"]


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

print(f"""# Performance

Made by `.ci/performance.py` on {datetime.date.today()}: release build, whole processes, the median
of three runs each. {os.cpu_count()} cores; when it began, {load:.1f} processes were running or
waiting for a core, so *time* may be longer than on an idle machine; *processor* is the time that
the process had of all cores. *memory* is the peak resident set. burn {burn['version']}: {switches}.

```console
$ cargo build --release{features} && python3 .ci/performance.py > docs/performance.md
```

## What must be reached
""")
with tempfile.TemporaryDirectory() as folder:
    pictures = f"--html {folder}/a --svg {folder}/b --trace {folder}/c"
    step = "estimate resnet-50 --batch 32 --optimizer adam"
    rows = [
        row(f"`{step}`", step, "≤ 0.2 s, ≤ 60 MB"),
        row("the same with `--html`, `--svg` and `--trace`", f"{step} {pictures}", "-"),
        row("`max-batch resnet-50 --gpu 24GB`", "max-batch resnet-50 --gpu 24GB", "≤ 1 s"),
    ]
    if "\n  table " in known:
        preset = "table --preset lambda-2020 --precision fp32 --precision mixed"
        rows.append(row(f"`{preset}`", preset, "≤ 60 s"))
print(table(["", "must be", *COST], rows))

print("""## With the batch

`estimate resnet-50 --batch N`: the number of operations does not depend on it.
""")
print(growing("N", [(str(n), f"estimate resnet-50 --batch {n}") for n in (1, 8, 64, 512, 4096)]))

print("""## With the depth

`estimate NAME`: ResNets for CIFAR-10 of 20, 56 and 110 layers, and the four sizes of GPT-2 with 12,
24, 36 and 48 blocks. A search for free memory looks at every slice of a page, so a step with twice
the tensors can take more than twice the time.
""")
deeper = ["resnet-20", "resnet-56", "resnet-110", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"]
print(growing("NAME", [(name, f"estimate {name}") for name in deeper]))

print("""## With the number of cards

`table resnet-50` on so many cards of the catalogue: of the cards with the same kernels one is run,
and the others are replayed. The answer is another batch on each card, so that each takes replays of
its own: of 91 cards in the last row 5.8 on average, some 25 ms together on two cores.
""")
cards = [card["aliases"][0] for card in answer("gpus") if card["vendor"] == "NVIDIA"]
counts = (1, 2, 4, 8, 16, len(cards))
print(growing("cards", [
    (str(count), f"table resnet-50 --gpus {','.join(cards[:count])}") for count in counts
]))
print("""`max-batch resnet-50`, which says of each card what both batches at the limit take and so runs them there:
""")
print(growing("cards", [
    (str(count), "max-batch resnet-50 " + " ".join(f"--gpu {card}" for card in cards[:count]))
    for count in (1, 4, 16)
]))

print("""## The whole zoo

`estimate NAME`, each at its published recipe, by processor time. It must be at most 1 s; for
nasnet-a-large, stylegan and llama-2-7b 5 s.
""")
zoo = [row(model["name"], f"estimate {model['name']}") for model in answer("models")]
zoo.sort(key=lambda cells: -float(cells[2].split()[0]))
print(table(["NAME", *COST], zoo))

print("""## Where the time goes

`cargo bench` measures the parts in process: the simulation of two steps, the analysis, one replay.
In the slowest networks of the zoo, language models whose recurrent layers are unrolled, most of it
is CubeCL's own search for a free slice, once in the simulation and two or three times in the
replays that find `required_bytes`: before each allocation it merges the slices of the pages that it
looks at.

With burn's defaults (fusion and autotune) a step is simulated several times: to tune it, as it is
then, and with the leanest and the hungriest kernels. Fused steps take turns within a process, so
those of published networks are run in processes of their own. Measured by hand on 2026-11-22, the
median of three, warm and cold: ResNet-50 at batch 32 0.88 and 0.76 s (must be: 1 and 2 s), a
bidirectional LSTM of 64 steps (`infersent --seq 64`) 2.27 and 1.60 s (must be: 3 s), BERT-base 0.88 and
0.71 s, elmo-bilm 1.21 and 0.93 s, char-lm-ptb 4.96 and 4.29 s. Half of the processor's time is fusion's own
search: of the samples of a profile, 52 % with ResNet-50 and 50 % with the LSTM were in it, 19 and 6 % in the
tuner.

Machines differ from hour to hour: on 2026-11-22 the preset took from 45 to 57 s with much the same
program. Most of what is left are runs (of the largest card with each kind of kernels, and of other
cards where a network is not foretold), the rest replays: four or five for a cell, most of them of a
batch that is refused.""")
