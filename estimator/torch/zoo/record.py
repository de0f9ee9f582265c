"""Record the networks of `train.py` at two batches, and keep what is needed to answer for any batch.

    python record.py                             # all of them, into ../data/zoo
    python record.py resnet-50 gpt2              # some
    python record.py --check 32 resnet-50        # whether one with 32 samples is as what is kept says
    python record.py --card t4 gpt2              # on one of the cards
    python record.py --check 32 --card a100 vgg-16  # how far off the kernels of a kept card are on another one

A kept file is a stream of the recorder at the first batch without what the allocator does not see, and two lines after it:
`["batch", B]` and `["slopes", [...]]`, the bytes that one more sample adds to each block. That is so of cuDNN's workspaces
too, by the recorder's rule. Kernels and their workspaces are those of a card, so there is a file for one card of each
generation. It is compressed as `../data/compress.py` does. It needs torch with CUDA (no GPU), torchvision, timm and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parent / "data" / "zoo"
#: One of each generation; its name is a part of the file's, but for the first. `kept.rs` says for which cards each stands.
CARDS = ("rtx-3090", "t4", "a100", "h200")
#: The second two, if sums of few rows make other calls: their kernels write partial results from some size on.
BATCHES = ((2, 3), (8, 9))
#: Three steps: the third is as the second, and the second begins with the optimizer's state.
STEPS = 2


def record(name: str, batch: int, precision: str, folder: str, card: str) -> list[str]:
    path = os.path.join(folder, f"{batch}.jsonl")
    environment = dict(os.environ, PYTHONPATH=str(HERE.parent / "recorder"))
    command = [
        sys.executable,
        "-m",
        "fit_check_recorder.dump",
        "--card",
        card,
        "--steps",
        str(STEPS),
        "-o",
        path,
    ]
    command += [str(HERE / "train.py"), name, str(batch), precision]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return pathlib.Path(path).read_text().splitlines()


def calls(lines: list[str]) -> list[str]:
    """What the allocator sees, without numbers."""
    return [line[:4] for line in lines if line[:4] in ('["a"', '["f"', '["e"')]


def allocations(lines: list[str]) -> list[list]:
    return [json.loads(line) for line in lines if line.startswith('["a"')]


def kept(lines: list[str]) -> list[str]:
    """The lines without notes about the program."""
    first = json.loads(lines[0])[1]
    versions = {
        key: first[key] for key in ("version", "torch", "cuda", "python", "settings")
    }
    versions["packages"] = {
        k: v
        for k, v in first["packages"].items()
        if k in ("torchvision", "timm", "transformers")
    }
    hello = json.dumps(["hello", versions], separators=(",", ":"))
    return [hello] + [line for line in lines[1:] if line[:4] not in ('["x"', '["i"')]


def path_of(name: str, precision: str, card: str) -> pathlib.Path:
    # Without a file of its own a card has the first one's kernels.
    ending = "" if card not in CARDS[1:] else f".{card}"
    return TARGET / f"{name}.{precision}{ending}.z"


def keep(name: str, precision: str, card: str) -> None:
    for batch, following in BATCHES:
        with tempfile.TemporaryDirectory() as folder:
            first, second = (
                record(name, samples, precision, folder, card)
                for samples in (batch, following)
            )
        if calls(first) == calls(second):
            break
    else:
        raise SystemExit(
            f"{name} {precision} {card}: other calls with batch {following}"
        )
    one, other = allocations(first), allocations(second)
    slopes = [
        (b[2] - a[2]) // (following - batch) for a, b in zip(one, other, strict=True)
    ]
    lines = kept(first)
    lines += [
        json.dumps(line, separators=(",", ":"))
        for line in (["batch", batch], ["slopes", slopes])
    ]
    text = "".join(line + "\n" for line in lines).encode()
    TARGET.mkdir(exist_ok=True)
    packed = len(text).to_bytes(8, "little") + zlib.compress(text, 9)
    path_of(name, precision, card).write_bytes(packed)
    print(
        f"{name} {precision} {card}: {len(one)} blocks, {len(packed)} bytes", flush=True
    )


def kept_at(name: str, precision: str, card: str, batch: int) -> list[str]:
    """The lines of a kept file with the sizes of another batch."""
    packed = path_of(name, precision, card).read_bytes()
    *lines, first, slopes = zlib.decompress(packed[8:]).decode().splitlines()
    more = batch - json.loads(first)[1]
    slopes = iter(json.loads(slopes)[1])
    found = []
    for line in lines:
        if line.startswith('["a"'):
            allocation = json.loads(line)
            allocation[2] += more * next(slopes)
            line = json.dumps(allocation, separators=(",", ":"))
        found.append(line)
    return found


def check(name: str, precision: str, batch: int, card: str) -> None:
    """Say where a recording differs from what is kept, and what that does to the peaks."""
    kept_lines = kept_at(name, precision, card, batch)
    with tempfile.TemporaryDirectory() as folder:
        lines = record(name, batch, precision, folder, card)
        files = [os.path.join(folder, which) for which in ("kept", "recorded")]
        for path, text in zip(files, (kept_lines, lines), strict=True):
            pathlib.Path(path).write_text("\n".join(text) + "\n")
        peaks = [allocator.replay(path)[1][-1] for path in files]
    if calls(kept_lines) != calls(lines):
        difference = "other calls"
    else:
        pairs = zip(allocations(kept_lines), allocations(lines), strict=True)
        others = [abs(b[2] - a[2]) for a, b in pairs if a[2] != b[2]]
        difference = f"{len(others)} blocks of other sizes"
        if others:
            difference += f", at most {max(others) / allocator.MIB:.1f} MiB"
    changes = [
        f"{what} {100 * (kept / recorded - 1):+.2f} %"
        for what, kept, recorded in zip(("allocated", "reserved"), *peaks, strict=True)
    ]
    print(
        f"{name} {precision}, batch {batch}, {card}: {difference}; {', '.join(changes)}",
        flush=True,
    )


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent / "recorder" / "tests")]
    import allocator
    from train import ZOO

    parser = argparse.ArgumentParser()
    parser.add_argument("--check", type=int, metavar="BATCH")
    parser.add_argument("--card")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.check is None and options.card not in (None, *CARDS):
        parser.error(f"--card is one of {', '.join(CARDS)}")
    cards = [options.card] if options.card else CARDS
    for card in cards:
        for name in options.names or ZOO:
            for precision in ("fp32", "mixed"):
                if options.check is None:
                    keep(name, precision, card)
                else:
                    check(name, precision, options.check, card)
