"""Compile 100 IREE dispatches, 10 of them invalid: batched against one iree-compile each.

    python benchmarks/iree_compile.py [OPERATIONS]

The target is a factor of 4 in wall-clock time on two cores. Both sides compile all hundred by
default (about half a minute); with OPERATIONS below 10 the sequential side compiles all ten
configurations of that many operations, spread evenly, and its time is scaled up, which the output
then says. Each sequential call may use all processors, as iree-compile does by itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, TargetKind, parse_operation
from gemmetry.hardware.host import usable_cores
from gemmetry.providers.iree_provider.batches import dispatch_function
from gemmetry.providers.iree_provider.provider import PROVIDER
from gemmetry.providers.iree_provider.support import target_flags
from gemmetry.providers.iree_provider.tiles import CpuTile

CPU = Target(TargetKind.CPU)
SHAPES = [(m, n) for m in (256, 512) for n in (256, 384, 512, 768, 1024)]
VALID = [
    CpuTile(m, n, *vector)
    for m, n in ((64, 64), (64, 128), (32, 64))
    for vector in ((8, 32, 4), (8, 32, 1), (4, 32, 2))
]
INVALID = CpuTile(64, 128, 64, 128, 1)
"""Its vectors are larger than the compiler's stack limit."""

CONFIGURATIONS = len(VALID) + 1


def dispatches() -> list[Dispatch]:
    operations = [parse_operation(f"matmul_{m}x{n}x512_f32t_f32t_f32t") for m, n in SHAPES]
    return [
        Dispatch(operation, tile.configuration, "iree", CPU)
        for operation in operations
        for tile in (*VALID, INVALID)
    ]


def batched(wanted: list[Dispatch], jobs: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(generated=Path(folder) / "generated", jobs=jobs)
        began = perf_counter()
        results = list(PROVIDER().compile(wanted, workspace))
        elapsed = perf_counter() - began
    rejected = sum(result.error is not None for result in results)
    assert (len(results), rejected) == (len(wanted), len(SHAPES))
    return elapsed


def sequential(wanted: list[Dispatch]) -> float:
    program = PROVIDER()._compiler_path()
    assert program is not None
    rejected = 0
    with tempfile.TemporaryDirectory() as folder:
        began = perf_counter()
        for dispatch in wanted:
            flags = target_flags(dispatch.target, dispatch.operation, {})
            done = subprocess.run(
                [str(program), "-", *flags, "-o", f"{folder}/out.vmfb"],
                input=dispatch_function(dispatch).encode(),
                stderr=subprocess.DEVNULL,
                check=False,
            )
            rejected += done.returncode != 0
        elapsed = perf_counter() - began
    assert rejected == len(wanted) // CONFIGURATIONS
    return elapsed


def main() -> None:
    count = min(int(sys.argv[1]) if len(sys.argv) > 1 else len(SHAPES), len(SHAPES))
    wanted = dispatches()
    chosen = [len(SHAPES) * index // count for index in range(count)]
    part = [d for index in chosen for d in wanted[index * CONFIGURATIONS :][:CONFIGURATIONS]]
    jobs = min(2, usable_cores())
    together = batched(wanted, jobs)
    apart = sequential(part) * len(wanted) / len(part)
    scaled = "" if len(part) == len(wanted) else f", scaled up from {len(part)} of {len(wanted)}"
    print(f"batched, {jobs} processes:      {together:6.1f} s")
    print(f"one iree-compile each:     {apart:6.1f} s{scaled}")
    print(f"factor:                    {apart / together:6.1f}")


if __name__ == "__main__":
    main()
