"""Launch the kernels with planted bottlenecks, and check what each computed.

    python benchmarks/bottlenecks/run.py                     # each variant once, times and checks
    python benchmarks/bottlenecks/run.py --only l2 --variant severe --launches 20
    gemmetry counters collect -o planted -- python benchmarks/bottlenecks/run.py

Requires an NVIDIA GPU and the extra ``cuda`` (cuda-bindings, NVRTC); torch is not needed. The time
printed is the shortest of the launches, from the GPU's events; under a profiler it means nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver
from host_formulas import Work
from planted_kernels import KERNELS, SOURCES, VARIANTS, Launch, Planted

from gemmetry.hardware.cuda_compiler import compile_file
from gemmetry.hardware.cuda_driver import Kernel, checked, device_attribute

_CHECKED_AT = 4096
"""How many words of a long output are compared; the formula would take seconds for all."""
_STATIC_SHARED_BYTES = 48 * 1024
"""Shared memory that a launch may have without asking for it (CUDA C++ programming guide)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One variant as it ran."""

    kernel: str
    cause: str
    blocks: int
    threads: int
    registers: int
    shared_bytes: int
    blocks_per_processor: int
    microseconds: float


@contextmanager
def first_gpu() -> Iterator[str]:
    """Makes the first GPU current; gives its architecture, ``sm_90`` …

    Raises:
        SystemExit: there is no driver. CudaError: it has no GPU.
    """
    try:
        checked(driver.cuInit(0), "starting the driver")
    except RuntimeError as error:  # cuda-bindings' own, where there is no driver
        raise SystemExit(f"These kernels need an NVIDIA GPU: {error}") from error
    device = checked(driver.cuDeviceGet(0), "finding a GPU")
    context = checked(driver.cuDevicePrimaryCtxRetain(device), "opening the GPU")
    checked(driver.cuCtxSetCurrent(context), "opening the GPU")
    try:
        major, minor = (
            device_attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR")
        )
        yield f"sm_{major}{minor}"
    finally:
        checked(driver.cuDevicePrimaryCtxRelease(device), "closing the GPU")


@contextmanager
def memory(size_bytes: int) -> Iterator[int]:
    """Address of so much memory of the GPU."""
    address = checked(driver.cuMemAlloc(size_bytes), f"allocating {size_bytes} bytes")
    try:
        yield int(address)
    finally:
        checked(driver.cuMemFree(address), "freeing memory")


def blocks_per_processor(kernel: Kernel, launch: Launch) -> int:
    """How many of its blocks a multiprocessor runs at a time."""
    occupancy = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        driver.CUfunction(kernel.address), launch.threads, launch.dynamic_bytes
    )
    return int(checked(occupancy, f"querying the occupancy of {kernel.name}"))


def measure(planted: Planted, variant: str, architecture: str, launches: int) -> Row:
    """Launch one variant, and check what it wrote.

    Raises:
        SystemExit: the output is not what the host's formula gives.
    """
    launch = planted.launch(variant)
    name = f"{planted.name}_{variant}"
    kernel = Kernel(compile_file(SOURCES, planted.name, (), architecture), name)
    if launch.dynamic_bytes > _STATIC_SHARED_BYTES:
        kernel.allow_shared_memory(launch.dynamic_bytes)
    each = blocks_per_processor(kernel, launch)
    blocks = launch.blocks(device_attribute("MULTIPROCESSOR_COUNT"), each)
    given = planted.given(variant)
    written = np.empty(planted.words or blocks * launch.threads, dtype=np.uint32)
    with memory(given.nbytes) as source, memory(written.nbytes) as target:
        checked(driver.cuMemcpyHtoD(source, given.ctypes.data, given.nbytes), "copying the input")
        times = [
            time_once(kernel, launch, blocks, source, target, len(written))
            for _ in range(max(1, launches))
        ]
        checked(
            driver.cuMemcpyDtoH(written.ctypes.data, target, written.nbytes), "copying the output"
        )
    problem = wrong(planted, launch.work(blocks), given, written)
    if problem:
        raise SystemExit(f"{name} computed something else: {problem}")
    shared = kernel.attribute("SHARED_SIZE_BYTES") + launch.dynamic_bytes
    registers = kernel.attribute("NUM_REGS")
    return Row(
        name, planted.cause, blocks, launch.threads, registers, shared, each, min(times) * 1e3
    )


def time_once(
    kernel: Kernel, launch: Launch, blocks: int, source: int, target: int, words: int
) -> float:
    """Clear the output, launch, and wait; milliseconds between the events around the launch."""
    checked(driver.cuMemsetD32(target, 0, words), "clearing the output")
    start, end = (checked(driver.cuEventCreate(0), "creating an event") for _ in range(2))
    checked(driver.cuEventRecord(start, 0), "recording an event")
    arguments = (
        ctypes.c_void_p(source),
        ctypes.c_void_p(target),
        ctypes.c_int(launch.steps),
        ctypes.c_int(launch.size),
    )
    kernel.launch(blocks, launch.threads, launch.dynamic_bytes, 0, arguments)
    checked(driver.cuEventRecord(end, 0), "recording an event")
    checked(driver.cuEventSynchronize(end), f"running {kernel.name}")
    passed = float(checked(driver.cuEventElapsedTime(start, end), "reading events"))
    for event in (start, end):
        checked(driver.cuEventDestroy(event), "destroying an event")
    return passed


def wrong(
    planted: Planted, work: Work, given: npt.NDArray[np.uint32], written: npt.NDArray[np.uint32]
) -> str:
    """What is wrong with an output; "" if nothing is. A long output is compared in words spread
    evenly over it, the first and the last among them."""
    at = np.unique(np.linspace(0, len(written) - 1, _CHECKED_AT).round().astype(np.int64))
    expected = planted.formula(work, given, at)
    found = written[at].view(expected.dtype)
    right = np.isclose(found, expected, rtol=planted.tolerance, atol=0)
    if right.all():
        return ""
    first = int(np.flatnonzero(~right)[0])
    return (
        f"{np.count_nonzero(~right)} of {len(at)} words differ, "
        f"the first at {at[first]}: {found[first]} instead of {expected[first]}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what was requested, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [planted.name for planted in KERNELS]
    parser.add_argument("--only", action="append", choices=names, help="kernels to run")
    parser.add_argument("--variant", action="append", choices=VARIANTS)
    parser.add_argument("--launches", type=int, default=1, help="of each variant")
    parser.add_argument("--json", type=Path, help="write the table to this file, too")
    options = parser.parse_args(arguments)
    rows, failed = [], []
    print(f"{'kernel':28} {'blocks':>6} {'threads':>7} {'registers':>9} {'shared':>7} {'µs':>8}")
    with first_gpu() as architecture:
        for planted in KERNELS:
            if options.only and planted.name not in options.only:
                continue
            for variant in options.variant or VARIANTS:
                try:
                    row = measure(planted, variant, architecture, options.launches)
                except SystemExit as error:
                    failed.append(str(error))
                    print(error, flush=True)
                    continue
                rows.append(row)
                print(
                    f"{row.kernel:28} {row.blocks:6} {row.threads:7} {row.registers:9} "
                    f"{row.shared_bytes:7} {row.microseconds:8.1f}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if failed:
        sys.exit(f"{len(failed)} kernels computed something else than the host's formula.")


if __name__ == "__main__":
    main()
