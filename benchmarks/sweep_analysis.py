"""Analysing sweeps: seconds and memory of a real sweep, and the cost per trace as ranks grow.

    python benchmarks/sweep_analysis.py --sweep sweep_h200x4 --ranks 16,64,256,1024

Each row is one `gemmetry sweep analyze` as a process of its own, start-up and workers counted. Its
memory is the largest sum over the process and its workers, taken every 20 ms. With ``--ranks``,
sweeps of one point with so many ranks are made from the traces of one point of the real sweep,
which are repeated with other ranks in their heads; without ``--sweep``, from synthetic traces of
the tests.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from gemmetry.hardware.host import resident_bytes, usable_cores

LIMIT_S, LIMIT_MB = 15.0, 1500.0
"""What the project allows for the real sweep with 2 processors."""

_WORLD_SIZE = re.compile(rb'("world_size": )\d+')
_RANK = re.compile(rb'("rank": )\d+')


def measure(command: Sequence[str]) -> tuple[float, float, float]:
    """Seconds, seconds of processors, and the largest resident memory of all processes in MB.

    Raises:
        RuntimeError: the command failed.
    """
    before, began = os.times(), time.perf_counter()
    most = 0
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        while process.poll() is None:
            most = max(most, sum(map(resident_bytes, _family(process.pid))))
            time.sleep(0.02)
        seconds, after = time.perf_counter() - began, os.times()
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(errors.read().decode(errors="replace"))
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    return seconds, used, most / 1e6


def _family(pid: int) -> Iterator[int]:
    """The process and its children."""
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    # Workers are started by threads.
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children += thread.read_text().split()
        except OSError:
            continue
    yield from set(map(int, children))


def analyze(sweep: Path, folder: Path) -> list[str]:
    """The command for `sweep`, which writes to `folder`."""
    gemmetry = [sys.executable, "-m", "gemmetry"]
    return [*gemmetry, "sweep", "analyze", str(sweep), "--analysis-dir", str(folder), "--json"]


def make_sweep(folder: Path, ranks: int, origin: Path | None) -> Path:
    """A sweep of one point with so many `ranks`, from the traces of the first point of `origin`."""
    place = folder / "256thread" / "nccl_8channels" / "torch_profiler"
    place.mkdir(parents=True)
    texts = _texts(ranks, origin)
    for rank in range(ranks):
        text = texts[rank % len(texts)]
        text = _WORLD_SIZE.sub(rb"\g<1>%d" % ranks, _RANK.sub(rb"\g<1>%d" % rank, text, count=1))
        (place / f"rank{rank}.pt.trace.json.gz").write_bytes(gzip.compress(text, 1))
    return folder


def _texts(ranks: int, origin: Path | None) -> list[bytes]:
    if origin is None:
        sweeps = _generator()
        return [text.encode() for text in sweeps.point_traces(sweeps.MadePoint(ranks=4))]
    first = sorted(origin.rglob("rank0.pt.trace.json.gz"))[0].parent
    files = sorted(first.glob("rank*.pt.trace.json.gz"))[:ranks]
    return [gzip.decompress(file.read_bytes()) for file in files]


def _generator() -> ModuleType:
    path = Path(__file__).parents[1] / "tests" / "synthetic_sweeps.py"
    spec = importlib.util.spec_from_file_location("sweeps_of_tests", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def line(what: str, traces: int, found: tuple[float, float, float]) -> str:
    """A row of the table."""
    seconds, used, memory = found
    return (
        f"| {what} | {traces} | {seconds:.1f} | {used:.1f} | {1000 * used / traces:.0f} | "
        f"{memory:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sweep", type=Path, help="folder of a real sweep")
    parser.add_argument("--ranks", default="", help="ranks of sweeps to make: 16,64,256,1024")
    options = parser.parse_args()
    print(f"{usable_cores()} processors")
    print("| sweep | traces | s | CPU s | CPU ms per trace | MB |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.sweep is not None:
            traces = len(list(options.sweep.rglob("rank*.pt.trace.json.gz")))
            found = measure(analyze(options.sweep, folder / "real"))
            print(line(options.sweep.name, traces, found), flush=True)
            if found[0] > LIMIT_S or found[2] > LIMIT_MB:
                print(f"above the limit of {LIMIT_S:g} s and {LIMIT_MB:g} MB")
        for ranks in map(int, filter(None, options.ranks.split(","))):
            made = make_sweep(folder / str(ranks), ranks, options.sweep)
            found = measure(analyze(made, folder / f"{ranks}_analysis"))
            print(line(f"1 point, {ranks} ranks", ranks, found), flush=True)


if __name__ == "__main__":
    main()
