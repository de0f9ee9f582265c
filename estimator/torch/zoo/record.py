"""Record the networks of `train.py` at small batches, and keep what is needed to answer for any batch.

    python record.py                        # all of them, into ../data/zoo
    python record.py resnet-50 gpt2         # some
    python record.py --check 32 resnet-50   # whether one with 32 samples is as what is kept says
    python record.py --check 32 --card a100 vgg-16

A file holds a section for each number format and card: the line `["of", FORMAT, CARD]`, and for each pair of batches a stream of
the recorder at the first one, without what the allocator does not see, `["batch", B]` and `["slopes", [...]]`, the bytes that one
more sample adds to each block. That is so of cuDNN's workspaces too, by the recorder's rule. A pair with the calls of the one before
has `["batch", B]` and `["bends", [[BLOCK, BYTES, SLOPE], ...]]` alone, the blocks that grow otherwise. Kernels and their workspaces
are those of a card, so there is a section for one card of each kind: `kept.rs` says for which cards each stands.

The pair at 2 speaks for all batches, if none that is tried is further off than `TOLERANCE`. Else there are more: some kernels take
what grows up to a limit, and others begin at some size. All of it is compressed with zstandard. It needs torch with CUDA (no GPU),
torchvision, timm, transformers and zstandard.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent / "recorder"),
    str(HERE.parent / "recorder" / "tests"),
]

import allocator
import zstandard
from fit_check_recorder.fork_client import serving
from train import ZOO

TARGET = HERE.parent / "data" / "zoo"
CARDS = ("t4", "a100", "rtx-3090", "h200")
FORMATS = ("fp32", "mixed")
#: No card of today has more.
MOST_BYTES = 288 << 30
MOST_SAMPLES = 256
#: Most allocated or reserved may be so far from what the pairs say: as far as the cuDNN rule is from a straight line.
TOLERANCE = 0.003


class NotLikePair(Exception):
    """Two batches make different calls."""


class DoesNotTrain(SystemExit):
    """The program raised an error."""


def calls(lines: list[str]) -> list[str]:
    """What the allocator sees, without sizes."""
    seen = (line for line in lines if line[:4] in ('["a"', '["f"', '["e"'))
    return [line[:4] if line[:4] == '["a"' else line for line in seen]


def sizes(lines: list[str]) -> list[int]:
    return [json.loads(line)[2] for line in lines if line.startswith('["a"')]


def peaks(lines: list[str]) -> tuple[int, int]:
    """Most allocated and most reserved."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        return allocator.replay(file.name)[1][-1]


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
    hello = written("hello", versions)
    return [hello] + [line for line in lines[1:] if line[:4] not in ('["x"', '["i"')]


def written(*fields: object) -> str:
    """A line."""
    return json.dumps(fields, separators=(",", ":"))


def short(lines: list[str]) -> list[str]:
    """The lines without numbers of blocks (`stream.rs`)."""
    found = []
    last = -1
    for line in lines:
        match json.loads(line):
            case ["a", last, size, operator, module, stream, kind, _]:
                fields = ["A", size, operator, module, stream, kind]
            case ["f", block]:
                fields = ["F", last - block]
            case ["r", block, role, parameter]:
                fields = ["R", last - block, role, parameter]
            case fields:
                pass
        found.append(written(*fields))
    return found


def numbered(lines: list[str]) -> list[str]:
    """The lines of a recorder: the opposite of `short`."""
    found = []
    last = -1
    for line in lines:
        match json.loads(line):
            case ["A", *fields]:
                last += 1
                fields = ["a", last, *fields, 0]
            case ["F", before]:
                fields = ["f", last - before]
            case ["R", before, *fields]:
                fields = ["r", last - before, *fields]
            case fields:
                pass
        found.append(written(*fields))
    return found


@dataclass
class Pair:
    batch: int
    lines: list[str]
    slopes: list[int]

    def at(self, batch: int) -> list[str]:
        """The lines with the sizes of another batch."""
        more = iter(self.slopes)
        found = []
        for line in self.lines:
            if line.startswith('["a"'):
                allocation = json.loads(line)
                allocation[2] += (batch - self.batch) * next(more)
                line = written(*allocation)
            found.append(line)
        return found

    def bent(self, batch: int, bends: list[list[int]]) -> Pair:
        """The same calls at a batch, from which on some blocks grow otherwise."""
        slopes = list(self.slopes)
        grown = sizes(self.at(batch))
        for block, size, slope in bends:
            grown[block], slopes[block] = size, slope
        more = [new - old for new, old in zip(grown, sizes(self.lines), strict=True)]
        return Pair(batch, Pair(0, self.lines, more).at(1), slopes)

    def text(self, before: Pair | None) -> str:
        """The lines of a file after those of the pair `before`."""
        batch = written("batch", self.batch)
        if before and calls(before.lines) == calls(self.lines):
            grown = zip(sizes(before.at(self.batch)), before.slopes, strict=True)
            own = list(zip(sizes(self.lines), self.slopes, strict=True))
            bends = [
                [block, *own[block]]
                for block, other in enumerate(grown)
                if own[block] != other
            ]
            lines = [batch, written("bends", bends)]
        else:
            lines = [*short(self.lines), batch, written("slopes", self.slopes)]
        return "".join(line + "\n" for line in lines)


def at(pairs: list[Pair], batch: int) -> list[str]:
    """What pairs, in order, say of a batch, as `Scaling::at` does."""
    until = [pair for pair in pairs if pair.batch <= batch]
    beyond = [pair for pair in pairs if pair.batch > batch]
    below = (until or pairs)[-1 if until else 0]
    above = beyond[0] if beyond else below
    is_above_nearer = batch * batch > below.batch * above.batch
    nearest = above if is_above_nearer else below
    if calls(below.lines) != calls(above.lines):
        return nearest.at(batch)
    lines = nearest.at(0)
    # By pair, at the batches of both and at this one.
    said = [
        [sizes(pair.at(n)) for n in (below.batch, above.batch, batch)]
        for pair in (below, above)
    ]
    found = []
    for block, (low, high) in enumerate(zip(said[0][2], said[1][2], strict=True)):
        is_concave = [
            said[1][0][block] >= said[0][0][block],
            said[0][1][block] >= said[1][1][block],
        ]
        if all(is_concave):
            found.append(min(low, high))
        elif not any(is_concave):
            found.append(max(low, high))
        else:
            found.append(high if is_above_nearer else low)
    more = [new - old for new, old in zip(found, sizes(lines), strict=True)]
    return Pair(0, lines, more).at(1)


class Network:
    """A network with the kernels of a card."""

    def __init__(
        self, ask: Callable[..., dict[str, int]], name: str, precision: str, card: str
    ) -> None:
        self.ask, self.name, self.precision, self.card = ask, name, precision, card
        self.recorded: dict[int, list[str]] = {}

    def lines(self, batch: int) -> list[str]:
        """What two steps do."""
        if batch not in self.recorded:
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "lines")
                # The second step begins with the optimizer's state; a third would be as it.
                ended = self.ask(
                    [self.name, str(batch), self.precision], self.card, str(path), 2
                )
                if ended != {"status": 0}:
                    raise DoesNotTrain(
                        f"{self.name} {self.precision} {self.card}, batch {batch}: {ended}"
                    )
                self.recorded[batch] = kept(path.read_text().splitlines())
        return self.recorded[batch]

    def pair(self, batch: int, other: int) -> Pair:
        first, second = self.lines(batch), self.lines(other)
        if calls(first) != calls(second):
            raise NotLikePair(
                f"{self.name} {self.precision} {self.card}: batches {batch} and {other}"
            )
        more = zip(sizes(first), sizes(second), strict=True)
        return Pair(batch, first, [(b - a) // (other - batch) for a, b in more])

    def pair_at(self, batch: int) -> Pair:
        """With the next batch, or if that makes other calls with the one before."""
        try:
            return self.pair(batch, batch + 1)
        except NotLikePair:
            return self.pair(batch, batch - 1)

    def differs(self, pairs: list[Pair], batch: int) -> str:
        """How the recording of a batch differs from what pairs say; empty if it does not."""
        predicted, recorded = at(pairs, batch), self.lines(batch)
        found = peaks(predicted), peaks(recorded)
        far = [one / other - 1 for one, other in zip(*found, strict=True)]
        different = calls(predicted) != calls(recorded)
        if not different and max(map(abs, far)) <= TOLERANCE:
            return ""
        figures = ", ".join(
            f"{what} {100 * off:+.2f} %"
            for what, off in zip(("allocated", "reserved"), far, strict=True)
        )
        return ("other calls: " if different else "") + figures

    def pairs(self) -> list[Pair]:
        """The pairs that speak for all batches: more of them where one is far off."""
        pairs = [self.pair_at(2)]
        largest = self.largest(pairs[0])

        def add_if_needed(batch: int) -> bool:
            needed = self.differs(pairs, batch) != ""
            if needed:
                pairs.append(self.pair_at(batch))
                pairs.sort(key=lambda pair: pair.batch)
            return needed

        def fill(low: int, high: int) -> None:
            middle = round((low * high) ** 0.5)
            if low < middle < high and high > 1.5 * low and add_if_needed(middle):
                fill(low, middle)
                fill(middle, high)

        known = 2
        for probe in (8, 32, 128, largest):
            if known < probe <= largest:
                if add_if_needed(probe):
                    fill(known, probe)
                known = probe
        try:
            alone = self.lines(1)
        except DoesNotTrain:
            # A batch norm of one value for each channel, as DeepLab has it.
            return pairs
        if self.differs(pairs, 1):
            pairs.insert(0, Pair(1, alone, [0] * len(sizes(alone))))
        return pairs

    def largest(self, pair: Pair) -> int:
        """The largest batch that anybody trains on one card, within a factor of two."""
        batch = 4
        while batch < MOST_SAMPLES and peaks(pair.at(2 * batch))[0] <= MOST_BYTES:
            batch *= 2
        return batch


def keep(ask: Callable[..., dict[str, int]], name: str) -> None:
    text = []
    for precision in FORMATS:
        for card in CARDS:
            pairs = Network(ask, name, precision, card).pairs()
            text.append(f'["of","{precision}","{card}"]\n')
            text += [
                pair.text(before)
                for before, pair in zip([None, *pairs], pairs, strict=False)
            ]
            batches = ", ".join(str(pair.batch) for pair in pairs)
            print(
                f"{name} {precision} {card}: {len(pairs[0].slopes)} blocks, at {batches}",
                flush=True,
            )
    TARGET.mkdir(exist_ok=True)
    packed = zstandard.ZstdCompressor(level=22).compress("".join(text).encode())
    (TARGET / f"{name}.zst").write_bytes(packed)
    print(f"{name}: {len(packed)} bytes", flush=True)


def kept_pairs(name: str, precision: str, card: str) -> list[Pair]:
    """What the file of a network says."""
    text = (
        zstandard.ZstdDecompressor()
        .decompress((TARGET / f"{name}.zst").read_bytes())
        .decode()
    )
    _, _, section = text.partition(f'["of","{precision}","{card}"]\n')
    section, _, _ = section.partition('["of",')
    pairs: list[Pair] = []
    lines: list[str] = []
    batch = 0
    for line in section.splitlines():
        match json.loads(line):
            case ["batch", at]:
                batch = at
            case ["slopes", slopes]:
                pairs.append(Pair(batch, numbered(lines), slopes))
                lines = []
            case ["bends", bends]:
                pairs.append(pairs[-1].bent(batch, bends))
            case _:
                lines.append(line)
    return pairs


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", type=int, metavar="BATCH")
    parser.add_argument("--card", choices=CARDS, help="for --check")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    with serving(HERE / "train.py") as ask:
        for name in options.names or ZOO:
            if options.check is None:
                keep(ask, name)
                continue
            for precision in FORMATS:
                for card in [options.card] if options.card else CARDS:
                    pairs = kept_pairs(name, precision, card)
                    found = Network(ask, name, precision, card).differs(
                        pairs, options.check
                    )
                    print(
                        f"{name} {precision}, batch {options.check}, {card}: {found or 'the same'}",
                        flush=True,
                    )
