"""Reads rocprofv3's kernel counters and statistics (CSV) into neutral rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gemmetry.formats.events import MISSING
from gemmetry.formats.rocm.rocprofv3.tables import blocks
from gemmetry.formats.rocm.rows import kernel_name


@dataclass(frozen=True, slots=True)
class CounterRow:
    """One counter of one dispatch."""

    dispatch: int
    kernel: str
    counter: str
    value: float
    workgroups: int
    workgroup_size: int
    start_ns: int
    """Missing in files of 2024."""
    end_ns: int


def read_counters(path: Path) -> Iterator[CounterRow]:
    """The rows of a ``counter_collection.csv``; rows without a number are left out.

    Raises:
        RequestError: the file cannot be opened.
    """
    for block in blocks(path):
        columns = zip(
            block.integers("Dispatch_Id"),
            block.texts("Kernel_Name"),
            block.texts("Counter_Name"),
            block.texts("Counter_Value"),
            block.integers("Grid_Size"),
            block.integers("Workgroup_Size"),
            block.integers("Start_Timestamp"),
            block.integers("End_Timestamp"),
            strict=True,
        )
        for dispatch, kernel, counter, value, items, size, start, end in columns:
            with contextlib.suppress(ValueError):
                yield CounterRow(
                    dispatch,
                    kernel_name(kernel),
                    counter,
                    float(value),
                    -(-items // size) if items >= 0 and size > 0 else MISSING,
                    size,
                    start,
                    end,
                )


@dataclass(frozen=True, slots=True)
class KernelStatistics:
    """One row of ``kernel_stats.csv``."""

    name: str
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int


def read_kernel_statistics(path: Path) -> list[KernelStatistics]:
    """The rows of a ``kernel_stats.csv``.

    Raises:
        RequestError: the file cannot be opened.
    """
    found = []
    for block in blocks(path):
        columns = zip(
            block.texts("Name"),
            block.integers("Calls"),
            block.integers("TotalDurationNs"),
            block.integers("MinNs"),
            block.integers("MaxNs"),
            strict=True,
        )
        found += [KernelStatistics(kernel_name(name), *rest) for name, *rest in columns]
    return found
