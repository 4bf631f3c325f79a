"""Compile 100 IREE dispatches, 10 of them invalid: batched against one iree-compile each.

    python benchmarks/iree_compile.py [SEQUENTIAL]

SEQUENTIAL is how many of the hundred the sequential side really compiles (default 100; its time is
scaled up). The target is a factor of 4 on two cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.names import parse_operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.iree_provider import PROVIDER
from gemmetry.providers.iree_provider.cpu import CpuTile
from gemmetry.providers.iree_provider.sources import dispatch_function
from gemmetry.providers.iree_provider.targets import target_flags
from gemmetry.providers.iree_provider.tiles import configuration

CPU = Target(TargetKind.CPU)
SHAPES = [(m, n) for m in (256, 512) for n in (256, 384, 512, 768, 1024)]
VALID = [
    CpuTile(m, n, 0, 0, 0, *vector)
    for m, n in ((64, 64), (64, 128), (32, 64))
    for vector in ((8, 32, 4), (8, 32, 1), (4, 32, 2))
]
INVALID = CpuTile(64, 128, 0, 0, 0, 64, 128, 1)
"""Its vectors are larger than the compiler's stack limit."""


def dispatches() -> list[Dispatch]:
    operations = [parse_operation(f"matmul_{m}x{n}x512_f32t_f32t_f32t") for m, n in SHAPES]
    return [
        Dispatch(operation, configuration(tile), "iree", CPU)
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
    began = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for dispatch in wanted:
            flags = target_flags(dispatch.target, dispatch.operation, {})
            subprocess.run(
                [str(program), "-", *flags, "-o", f"{folder}/out.vmfb"],
                input=dispatch_function(dispatch).encode(),
                stderr=subprocess.DEVNULL,
                check=False,
            )
    return perf_counter() - began


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    wanted = dispatches()
    step = max(1, len(wanted) // count)
    part = wanted[::step]
    jobs = min(2, os.cpu_count() or 1)
    together = batched(wanted, jobs)
    apart = sequential(part) * len(wanted) / len(part)
    print(f"batched, {jobs} processes:      {together:6.1f} s")
    print(f"one iree-compile each:     {apart:6.1f} s")
    print(f"factor:                    {apart / together:6.1f}")


if __name__ == "__main__":
    main()
