"""Reads a report of hardware counters of any supported tool."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.formats.counters.launches import LaunchTable
from gemmetry.formats.counters.ncu_csv import read_ncu_csv
from gemmetry.formats.counters.ncu_export import read_by_export
from gemmetry.formats.counters.ncu_installation import ncu_executable, report_library
from gemmetry.formats.counters.ncu_rep import MAGIC, read_ncu_rep
from gemmetry.formats.opening import open_decompressed


def read_counters(path: Path, metrics: Collection[str] | None = None) -> LaunchTable:
    """The launches of a report, with their metrics in base units.

    Args:
        path: a report of Nsight Compute, or a CSV file of its raw page.
        metrics: ids of the metrics to read, which takes less time and memory; None for all.

    Raises:
        RequestError: the file cannot be opened, or is no report of hardware counters.
        EnvironmentFailure: ``ncu`` cannot export it, where its library is missing.
    """
    with open_decompressed(path) as file:
        start = file.read(len(MAGIC))
    if start == MAGIC:
        return _read_report(path, metrics)
    table = read_ncu_csv(path, metrics)
    if table is None:
        raise RequestError(
            f"{path} is no report of hardware counters",
            hint="Write one with `ncu --import FILE --page raw --csv`.",
        )
    return table


def _read_report(path: Path, metrics: Collection[str] | None) -> LaunchTable:
    library = report_library()
    if library is not None:
        return read_ncu_rep(path, library, metrics)
    executable = ncu_executable()
    if executable is not None:
        return read_by_export(path, executable, metrics)
    raise RequestError(
        f"{path} is a report of Nsight Compute, and nothing here reads it",
        hint="pip install 'gemmetry[counters]', or export it where Nsight Compute is installed: "
        "ncu --import FILE --page raw --csv > FILE.csv",
    )
