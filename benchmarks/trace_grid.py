"""A table of a recorded grid: ``python benchmarks/trace_grid.py EXPERIMENT`` prints Markdown.

One row a configuration: the kernel that took most of its time, the median over the repeats of what
all its kernels took together, and the speed that is. Times are the profiler's, with one launch in
flight at a time, on a device that idles between launches; `gemmetry profile` measures better.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from gemmetry.formats.events import GpuKind
from gemmetry.formats.kineto import read_kineto

LONGEST_NAME = 60


def kernels_of(path: Path) -> tuple[int, str]:
    """ns of all kernels of a Kineto trace, and the name of the longest."""
    with path.open("rb") as file:
        rows = read_kineto(file)
    assert rows is not None
    took: Counter[str] = Counter()
    for index in np.flatnonzero(rows.gpu.kind == GpuKind.KERNEL):
        took[rows.names[rows.gpu.name[index]]] += int(rows.gpu.duration_ns[index])
    return took.total(), took.most_common(1)[0][0] if took else ""


def row_of(experiment: Path, entry: dict[str, Any]) -> str:
    """A line of the table."""
    record = entry["record"]
    head = f"| {entry['number']} | {record['m']}×{record['n']}×{record['k']} "
    head += f"| {record['lhs_dtype']} | {record['layouts']} "
    if entry["outcome"] != "ok":
        return head + f"| {entry['outcome']}: {record['reason']} | | | |"
    files = [name for name in entry["files"] if name.endswith(".pt.trace.json")]
    found = [kernels_of(experiment / entry["folder"] / name) for name in files]
    active = entry["schedule"]["active_steps"]
    times_us = [took / active / 1e3 for took, _ in found]
    median_us = statistics.median(times_us)
    flops = 2 * record["batch"] * record["m"] * record["n"] * record["k"]
    name = found[-1][1]
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}…"
    speed = f"{flops / median_us / 1e6:.0f}" if median_us else "–"
    spread = f"{min(times_us):.1f}–{max(times_us):.1f}"
    return head + f"| `{name}` | {median_us:.1f} | {spread} | {speed} |"


def main() -> None:
    """Print the table."""
    experiment = Path(sys.argv[1])
    text = (experiment / "traces_matmul" / "manifest.json").read_text(encoding="utf-8")
    print("| folder | M×N×K | format | layouts | kernel | median µs | range µs | TFLOP/s |")
    print("|---|---|---|---|---|---|---|---|")
    for entry in json.loads(text)["configurations"]:
        print(row_of(experiment, entry))


if __name__ == "__main__":
    main()
