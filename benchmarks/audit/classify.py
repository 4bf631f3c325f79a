"""The accumulator that the text of a kernel shows, for every kernel of a folder.

    python benchmarks/audit/classify.py FOLDER -o classes.csv

FOLDER holds CUDA C++ files called ``M_N_K.cu``, as the public release has them that
``docs/audit.md`` names. Comments are removed first; macros and unused branches are not followed, so
a class is what the text suggests, and a run decides.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_HALF = r"(?:(?:cutlass|cute)::)?(?:half_t|__half|half)\b"


def _accumulates_in(name: str, wide: str, short: str) -> re.Pattern[str]:
    """Atoms of CuTe, mma.sync and wgmma in PTX, aliases of CUTLASS, fragments of WMMA."""
    return re.compile(
        rf"{name}F16F16{name}|64x\d+x16_{name}F16F16|k\d+\.row\.col\.{short}\.f16\.f16"
        rf"|wgmma[^\"]*k16\.{short}\.f16\.f16|accumulator\s*,[^;>]*,\s*{wide}\s*>"
        rf"|(?:using\s+|typename\s+)\w*Acc\w*\s*=\s*{wide}"
    )


_F16 = _accumulates_in("F16", _HALF, "f16")
_F32 = _accumulates_in("F32", r"float\b", "f32")
_HALF_PARTIALS = re.compile(
    r"torch::empty\([^;]*kHalf|(?:half|half_t)\s*\*\s*(?:__restrict__\s*)?"
    r"\w*(?:partial|workspace|temp|scratch)\w*",
    re.IGNORECASE,
)
_FLAGS = {
    "own_stream": re.compile(r"cudaStreamNonBlocking"),
    "tunes_itself": re.compile(r"cudaEventElapsedTime"),
    "waits": re.compile(r"cudaDeviceSynchronize|cudaStreamSynchronize"),
    "hopper": re.compile(r"Sm90|wgmma|SM90_"),
}
"""Name of a fact -> text that shows it."""
_OPERANDS = re.compile(r"\b(b|b_col_major)\s*\.\s*data_ptr\b")
_TILE = re.compile(r"(BM|BN|BK)=Int<(\d+)>")

CLASSES = ("f16", "f16 partials", "both", "own stream", "f32", "unknown")
"""In order of precedence: sums in f16 only; split-K partial sums kept in f16; both accumulators in
the text; f32 on a stream that does not wait for the default one; f32; neither found."""


@dataclass(frozen=True)
class Kernel:
    """What the text of a kernel shows.

    Args:
        name: ``M_N_K``.
        kind: one of :data:`CLASSES`.
        operand: layout of B that it reads, ``n`` (column-major) or ``t``; empty if the text shows
            both or neither.
        padded: whether the release calls it with operands that are larger than M, N and K.
        facts: names from the table of other facts, joined by a blank.
    """

    name: str
    kind: str
    operand: str
    padded: bool
    facts: str

    @property
    def sizes(self) -> tuple[int, int, int]:
        m, n, k = map(int, self.name.split("_"))
        return m, n, k

    def operation(self, accumulator: str = "f32") -> str:
        """The name of what it computes, with sums in `accumulator`."""
        m, n, k = self.sizes
        suffix = "" if accumulator == "f32" else f"_acc{accumulator}"
        return f"matmul_{m}x{n}x{k}_f16t_f16{self.operand}_f16t{suffix}"


def classify(name: str, source: str) -> Kernel:
    """The class of the kernel `name`, ``M_N_K``, with the text `source`."""
    text = _COMMENTS.sub("", source)
    facts = [fact for fact, pattern in _FLAGS.items() if pattern.search(text)]
    has_f16, has_f32 = _F16.search(text), _F32.search(text)
    if _HALF_PARTIALS.search(text) and re.search("split", text, re.IGNORECASE):
        kind = "f16 partials"
    elif has_f16:
        kind = "both" if has_f32 else "f16"
    elif has_f32:
        kind = "own stream" if "own_stream" in facts else "f32"
    else:
        kind = "unknown"
    read = set(_OPERANDS.findall(text))
    operand = {"b": "t", "b_col_major": "n"}[read.pop()] if len(read) == 1 else ""
    return Kernel(name, kind, operand, _is_padded(name, source), " ".join(facts))


def _is_padded(name: str, source: str) -> bool:
    """Whether its tile, found as the release's own check finds it, does not divide the sizes."""
    tile = dict(_TILE.findall(source.replace(" ", "")))
    sizes = dict(zip(("BM", "BN", "BK"), map(int, name.split("_")), strict=True))
    return len(tile) == len(sizes) and any(sizes[axis] % int(tile[axis]) for axis in tile)


def classify_all(folder: Path) -> list[Kernel]:
    """The class of every ``.cu`` file of `folder`, in the order of their names."""
    return [classify(path.stem, path.read_text()) for path in sorted(folder.glob("*.cu"))]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table of classes, and print how many kernels each has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("classes.csv"))
    options = parser.parse_args(arguments)
    kernels = [
        classify(path.stem, path.read_text()) for path in sorted(options.folder.glob("*.cu"))
    ]
    with options.output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(Kernel))
        writer.writerows([getattr(one, f.name) for f in fields(Kernel)] for one in kernels)
    counts = Counter(one.kind for one in kernels)
    print(*(f"{kind}: {counts[kind]}" for kind in CLASSES), f"all: {len(kernels)}", sep="\n")


if __name__ == "__main__":
    main()
