"""Record the networks of `train.py` at two batches, and keep what is needed to answer for any batch.

    python record.py                 # all of them, into ../data/zoo
    python record.py resnet-50 gpt2  # some

A kept file is a stream of the recorder at the first batch without what the allocator does not see, and two lines after it:
`["batch", B]` and `["slopes", [...]]`, the bytes that one more sample adds to each block. It is compressed as
`../data/compress.py` does. It needs torch with CUDA (no GPU), torchvision, timm and transformers.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
CARD = "rtx-3090"
BATCHES = (2, 3)
#: Three steps: the third is as the second, and the second begins with the optimizer's state.
STEPS = 2


def record(name: str, batch: int, precision: str, folder: str) -> list[str]:
    path = os.path.join(folder, f"{batch}.jsonl")
    environment = dict(os.environ, PYTHONPATH=str(HERE.parent / "recorder"))
    command = [
        sys.executable,
        "-m",
        "fit_check_recorder.dump",
        "--card",
        CARD,
        "--steps",
        str(STEPS),
        "-o",
        path,
    ]
    command += [str(HERE / "train.py"), name, str(batch), precision]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return pathlib.Path(path).read_text().splitlines()


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


def keep(name: str, precision: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = (record(name, batch, precision, folder) for batch in BATCHES)
    one, other = allocations(first), allocations(second)
    calls = [
        [line[:4] for line in lines if line[:4] in ('["a"', '["f"', '["e"')]
        for lines in (first, second)
    ]
    if calls[0] != calls[1]:
        raise SystemExit(f"{name} {precision}: other calls with batch {BATCHES[1]}")
    slopes = [
        (b[2] - a[2]) // (BATCHES[1] - BATCHES[0])
        for a, b in zip(one, other, strict=True)
    ]
    lines = kept(first)
    lines += [
        json.dumps(line, separators=(",", ":"))
        for line in (["batch", BATCHES[0]], ["slopes", slopes])
    ]
    text = "".join(line + "\n" for line in lines).encode()
    target = HERE.parent / "data" / "zoo"
    target.mkdir(exist_ok=True)
    packed = len(text).to_bytes(8, "little") + zlib.compress(text, 9)
    (target / f"{name}.{precision}.z").write_bytes(packed)
    print(f"{name} {precision}: {len(one)} blocks, {len(packed)} bytes", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    from train import ZOO

    for name in sys.argv[1:] or ZOO:
        for precision in ("fp32", "mixed"):
            keep(name, precision)
