"""Are inferred shapes right? Deletes launches from traces at random and counts.

    python benchmarks/inferred_shapes.py TRACE... [--shares 0.3,0.6,0.9] [--seed 0]

Of each GEMM kernel whose operator is known, the launch and the number of the operator are deleted
with the given chance, which leaves the operator in the trace, as profilers do that lose launches.
Prints for each trace, with its path, how many kernels lost their launch, how many of those had
their shape inferred, and how many of the inferred shapes are wrong. The figures in docs/traces.md
are of the Kineto traces of 22 public models and jobs, and of three ranks of an FSDP job.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np

from gemmetry.traces.gemms import link_gemms
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import find_traces, read_trace


def count(path: Path, shares: list[float], random: np.random.Generator) -> tuple[int, int, int]:
    """Kernels that lost their launch, inferred shapes, wrong ones."""
    rows = read_trace(path, use_cache=False)
    links = link_gemms(Trace(path, rows))
    is_linked = (links.shape >= 0) & ~links.inferred
    lost_kernels = inferred = wrong = 0
    for share in shares:
        is_lost = is_linked & (random.random(len(links.row)) < share)
        columns = {name: getattr(rows.gpu, name).copy() for name in ("correlation", "external_id")}
        for column in columns.values():
            column[links.row[is_lost]] = -1
        damaged = dataclasses.replace(rows, gpu=dataclasses.replace(rows.gpu, **columns))
        found = link_gemms(Trace(path, damaged))
        for place in np.flatnonzero(is_lost).tolist():
            lost_kernels += 1
            if found.shape[place] >= 0:
                inferred += 1
                true = links.shapes[links.shape[place]][:4]
                wrong += found.shapes[found.shape[place]][:4] != true
    return lost_kernels, inferred, wrong


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--shares", default="0.3,0.6,0.9")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    shares = [float(share) for share in arguments.shares.split(",")]
    total = np.zeros(3, int)
    print(f"launches deleted with the chances {arguments.shares}, seed {arguments.seed}")
    print(f"{'lost':>6} {'inferred':>8} {'wrong':>6}  trace")
    paths = find_traces(arguments.traces)
    for path in paths:
        counts = count(path, shares, random)
        total += counts
        print(f"{counts[0]:6} {counts[1]:8} {counts[2]:6}  {path}")
    print(f"{total[0]:6} {total[1]:8} {total[2]:6}  all {len(paths)}")


if __name__ == "__main__":
    main()
