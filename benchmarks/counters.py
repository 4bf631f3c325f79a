"""How long reading and diagnosing hardware counters takes, and how much memory:

    python benchmarks/counters.py [--launches 10000] [--report FILE]...

It repeats the launch of a raw page of Nsight Compute with 2,238 columns, and reads the files in a
process of their own each. Prints Markdown: seconds of the best of three, those of processor time,
and the largest resident size in MB; then how long the diagnosis of one of the launches takes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from gemmetry.counters.collector import read_counters
from gemmetry.counters.gates import diagnose
from gemmetry.counters.roofline import roofline_of
from gemmetry.counters.work import GemmWork
from gemmetry.domain.operation import BF16

DATA = Path(__file__).parent.parent / "tests" / "data" / "counters"
RAW = DATA / "h200_cublas_bf16_4096_raw.csv.gz"
LAUNCHES = 10_000
REPEATS = 3
DIAGNOSES = 50
TWO = ("gpu__time_duration.sum", "dram__bytes_read.sum")

_READ = """
import json, resource, sys, time
from pathlib import Path
from gemmetry.counters.collector import read_counters
metrics = sys.argv[2:] or None
start, began = time.perf_counter(), time.process_time()
table = read_counters(Path(sys.argv[1]), metrics)
seconds, processor = time.perf_counter() - start, time.process_time() - began
kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([seconds, processor, kilobytes / 1e3, len(table), len(table.values)]))
"""


def lines_of(launches: int) -> Iterator[str]:
    """A raw page with `launches` copies of one launch, numbered."""
    with gzip.open(RAW, "rt", encoding="utf-8") as file:
        header, units, launch = file
    yield from (header, units)
    for number in range(launches):
        yield launch.replace('"0"', f'"{number}"', 1)


def measured(path: Path, *metrics: str) -> tuple[float, float, float, int, int]:
    """Seconds, those of processor time, MB, launches and metrics of reading `path`."""
    found = []
    for _ in range(REPEATS):
        command = [sys.executable, "-c", _READ, str(path), *metrics]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(tuple(json.loads(ended.stdout)))
    return min(found)


def diagnosed_ms() -> float:
    """Milliseconds of a diagnosis with its roofline, the best of many."""
    launch = read_counters(RAW)[0]
    work = GemmWork(m=4096, n=4096, k=4096, lhs=BF16, rhs=BF16)
    best = math.inf
    for _ in range(DIAGNOSES):
        start = time.perf_counter()
        diagnose(launch, work)
        roofline_of(launch)
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def main(words: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--launches", type=int, default=LAUNCHES)
    parser.add_argument("--report", type=Path, action="append", default=[])
    given = parser.parse_args(words)
    print("| file | launches | metrics | s | CPU s | MB |\n|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder, "raw.csv")
        with closing(large.open("w", encoding="utf-8")) as file:
            file.writelines(lines_of(given.launches))
        rows = [("one launch", RAW, ()), ("raw page", large, ()),
                ("raw page, two metrics", large, TWO)]  # fmt: skip
        rows += [(one.name, one, ()) for one in given.report]
        for title, path, metrics in rows:
            seconds, processor, megabytes, launches, count = measured(path, *metrics)
            counts = f"{launches:,} | {count:,}"
            print(f"| {title} | {counts} | {seconds:.3f} | {processor:.3f} | {megabytes:.0f} |")
    print(f"\nA launch is diagnosed in {diagnosed_ms():.2f} ms.")


if __name__ == "__main__":
    main()
