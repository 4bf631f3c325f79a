"""Reads a report of hardware counters of any supported tool."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.formats.counters.launches import LaunchTable
from gemmetry.formats.counters.ncu_csv import read_ncu_csv


def read_counters(path: Path, metrics: Collection[str] | None = None) -> LaunchTable:
    """The launches of a report, with their metrics in base units.

    Args:
        path: a CSV file of Nsight Compute's raw page.
        metrics: ids of the metrics to read, which takes less time and memory; None for all.

    Raises:
        RequestError: the file cannot be opened, or is no report of hardware counters.
    """
    table = read_ncu_csv(path, metrics)
    if table is None:
        raise RequestError(
            f"{path} is no report of hardware counters",
            hint="Write one with `ncu --import FILE --page raw --csv`.",
        )
    return table
