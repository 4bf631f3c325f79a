"""A trace with the data that its tables use: which kernels are GEMMs, which communicate, and when.

Everything is computed once, when it is first needed.

Measures the duration of each stage of a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from gemmetry.formats.events import Bools, GpuKind, Int32, Int64, ProblemKind, TraceRows, let_go
from gemmetry.traces.intervals import Intervals, union
from gemmetry.traces.joins import JoinedLaunches, join_launches
from gemmetry.traces.missing import launches_without_work
from gemmetry.traces.names import KernelName, classify, is_communication, is_gemm
from gemmetry.traces.operators.gemms import is_convolution_operator, launched_by_convolution


@dataclass(frozen=True)
class Trace:
    """One trace file; arrays have one entry per row of ``rows.gpu`` unless stated otherwise."""

    file: Path
    rows: TraceRows
    of: Path | None = None
    """The file, where it contains several traces; `file` then also names which one this is."""

    @cached_property
    def kernel_names(self) -> dict[int, KernelName]:
        """Facts from the names of its kernels, by their index in ``rows.names``."""
        return {index: classify(self.rows.names[index]) for index in self._used_names}

    @cached_property
    def _used_names(self) -> list[int]:
        """Indices of its kernels' names."""
        found: list[int] = np.flatnonzero(np.bincount(self.rows.gpu.name[self.is_kernel])).tolist()
        return found

    @property
    def has_gpu_work(self) -> bool:
        """Whether anything ran on a GPU: a kernel, a copy or a fill."""
        return len(self.rows.gpu.start_ns) > 0

    @cached_property
    def is_kernel(self) -> Bools:
        """Which rows are kernels, not copies or fills."""
        result: Bools = self.rows.gpu.kind == GpuKind.KERNEL
        return result

    @cached_property
    def is_gemm(self) -> Bools:
        """Which rows are kernels of a matrix multiplication, including its helper passes: kernels
        with such a name that no convolution operator is known to have launched."""
        result: Bools = self._is_named_gemm & ~self.is_gemm_of_convolution
        return result

    @cached_property
    def is_gemm_of_convolution(self) -> Bools:
        """Which rows are kernels with the name of a GEMM that a convolution operator launched, as
        cuDNN and MIOpen do for filters of 1 x 1 and for transformed inputs."""
        named = self._is_named_gemm
        is_convolution = np.array([is_convolution_operator(name) for name in self.rows.names], bool)
        if not named.any() or not is_convolution[self.rows.operators.name].any():
            return np.zeros(len(named), bool)
        return named & launched_by_convolution(self.rows, self.launches)

    @cached_property
    def _is_named_gemm(self) -> Bools:
        return self._of_names(is_gemm)

    @cached_property
    def is_communication(self) -> Bools:
        """Which rows are kernels that communicate with other GPUs, according to their names."""
        return self._of_names(is_communication)

    @cached_property
    def launches(self) -> JoinedLaunches:
        """The runtime call and the operator from which each row came."""
        found = join_launches(self.rows)
        self.let_go()
        return found

    @cached_property
    def lost_launches(self) -> Int64:
        """Rows of ``rows.calls``: launches whose work is not in the file, or has no usable time."""
        # Without these problems there are none: nothing was lost or left out.
        kinds = {problem.kind for problem in self.rows.problems}
        if kinds.isdisjoint((ProblemKind.NO_WORK, ProblemKind.NO_TIME)):
            return np.zeros(0, np.int64)
        return launches_without_work(self.rows, self.launches.call)

    @cached_property
    def is_copy(self) -> Bools:
        """Which rows are copies (memcpy)."""
        result: Bools = self.rows.gpu.kind == GpuKind.MEMCPY
        return result

    @cached_property
    def communication(self) -> Intervals:
        """All time in which a communication kernel runs."""
        return self.time_of(self.is_communication)

    def time_of(self, chosen: Bools | Int64) -> Intervals:
        """All time covered by at least one of the `chosen` rows (a mask or indices)."""
        gpu = self.rows.gpu
        return union(gpu.start_ns[chosen], gpu.duration_ns[chosen])

    def let_go(self) -> None:
        """Release the memory of columns mapped from files: called after each step of the work
        (:func:`~gemmetry.formats.events.let_go`)."""
        let_go(self.rows)

    def device_name(self, device: int) -> str:
        """Product name of a device; "" where the file does not record it.

        AMD's traces count the devices of kernels from the first CPU, but those in the file's header
        from the first GPU: where all GPUs are of one product, the number does not matter.
        """
        products = set(self.rows.devices.values())
        return products.pop() if len(products) == 1 else self.rows.devices.get(device, "")

    @cached_property
    def label(self) -> str:
        """File, rank if it is one of several, and product of the GPU, as far as they are known."""
        rows = self.rows
        parts = [self.file.name]
        if rows.rank is not None and (rows.world_size or 0) > 1:
            parts.append(f"rank {rows.rank} of {rows.world_size}")
        used = sorted({self.device_name(device) for device in set(rows.gpu.device.tolist())})
        return ", ".join((*parts, *filter(None, used)))

    def _of_names(self, is_wanted: Callable[[str], bool]) -> Bools:
        wanted = np.zeros(len(self.rows.names) + 1, bool)
        for index in self._used_names:
            wanted[index] = is_wanted(self.rows.names[index])
        name: Int32 = self.rows.gpu.name
        result: Bools = wanted[name] & self.is_kernel
        return result


@contextmanager
def stage(times: dict[str, float], name: str) -> Iterator[None]:
    """Add the duration of a block in seconds to `times`, less that of the stages within it."""
    counted, begin = sum(times.values()), time.perf_counter()
    try:
        yield
    finally:
        counted = sum(times.values()) - counted
        times[name] = times.get(name, 0.0) + time.perf_counter() - begin - counted
