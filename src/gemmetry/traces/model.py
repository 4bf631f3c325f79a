"""A trace with what its tables are made of: which kernels are GEMMs, which communicate, and when.

Everything is computed when it is first asked for, and once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gemmetry.formats.events import GpuKind, Int32, TraceRows
from gemmetry.kernel_names import GEMM_KINDS, KernelKind, KernelName, classify
from gemmetry.traces.intervals import Intervals, union
from gemmetry.traces.joins import Launches, join_launches

Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Trace:
    """One trace file; arrays have one entry a row of ``rows.gpu`` unless they say otherwise."""

    file: Path
    rows: TraceRows

    @cached_property
    def kernel_names(self) -> dict[int, KernelName]:
        """What the names of its kernels tell, by their index in ``rows.names``."""
        gpu = self.rows.gpu
        used = np.unique(gpu.name[gpu.kind == GpuKind.KERNEL])
        return {int(index): classify(self.rows.names[index]) for index in used}

    @property
    def has_gpu_work(self) -> bool:
        """Whether anything ran on a GPU: a kernel, a copy or a fill."""
        return len(self.rows.gpu.start_ns) > 0

    @cached_property
    def is_kernel(self) -> Bools:
        """A kernel, not a copy or a fill."""
        result: Bools = self.rows.gpu.kind == GpuKind.KERNEL
        return result

    @cached_property
    def is_gemm(self) -> Bools:
        """A kernel of a matrix multiply, its helper passes included, going by its name."""
        return self._of_kinds(GEMM_KINDS)

    @cached_property
    def is_communication(self) -> Bools:
        """A kernel that communicates with other GPUs, going by its name."""
        return self._of_kinds(frozenset({KernelKind.COLLECTIVE}))

    @cached_property
    def launches(self) -> Launches:
        """Which runtime call and which operator each row came from."""
        return join_launches(self.rows)

    @cached_property
    def communication(self) -> Intervals:
        """All time in which a communication kernel runs."""
        return self.time_of(self.is_communication)

    def time_of(self, chosen: Bools) -> Intervals:
        """All time that at least one of the `chosen` rows covers."""
        gpu = self.rows.gpu
        return union(gpu.start_ns[chosen], gpu.duration_ns[chosen])

    def device_name(self, device: int) -> str:
        """Product name of a device; "" where the file does not tell.

        AMD's traces count the devices of kernels from the first CPU and those of the file's head
        from the first GPU: where all GPUs are of one product, the number does not matter.
        """
        products = set(self.rows.devices.values())
        return products.pop() if len(products) == 1 else self.rows.devices.get(device, "")

    @cached_property
    def label(self) -> str:
        """File, rank where it is one of several, and product of the GPU, as far as is known."""
        rows = self.rows
        parts = [self.file.name]
        if rows.rank is not None and (rows.world_size or 0) > 1:
            parts.append(f"rank {rows.rank} of {rows.world_size}")
        used = sorted({self.device_name(device) for device in set(rows.gpu.device.tolist())})
        return ", ".join((*parts, *filter(None, used)))

    def _of_kinds(self, kinds: frozenset[KernelKind]) -> Bools:
        chosen = np.array([i for i, n in self.kernel_names.items() if n.kind in kinds], np.int32)
        wanted = np.zeros(len(self.rows.names) + 1, bool)
        wanted[chosen] = True
        name: Int32 = self.rows.gpu.name
        result: Bools = wanted[name] & self.is_kernel
        return result
