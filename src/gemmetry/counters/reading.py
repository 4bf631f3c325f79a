"""Reads a report of hardware counters of any supported tool."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from gemmetry.domain.errors import GemmetryError, RequestError
from gemmetry.domain.opening import open_decompressed
from gemmetry.formats.counters.amd import (
    read_rocprof_compute,
    read_rocprofv3_file,
    read_rocprofv3_folder,
)
from gemmetry.formats.counters.launches import LaunchTable
from gemmetry.formats.counters.ncu_pages import read_ncu_csv
from gemmetry.formats.counters.ncu_report import MAGIC, read_by_export, read_ncu_rep, report_library
from gemmetry.formats.readers import TraceFormat, format_of
from gemmetry.hardware.doctor import tool_path

_PRINTED = re.compile(rb"^ +Section: .+\r?\n(?:.+\n)? +Metric Name +Metric Unit", re.MULTILINE)
_PRINTED_HINT = (
    "It is what ncu prints for people: run ncu with --csv, or with -o FILE and give FILE.ncu-rep."
)
_SEARCHED_BYTES = 1 << 20
_HINT = (
    "Give a report of Nsight Compute (.ncu-rep), or what it writes with --csv; or rocprofv3's "
    "counter_collection.csv, results.json or .db, its folder, or rocprof-compute's pmc_perf.csv."
)


def read_counters(path: Path, metrics: Collection[str] | None = None) -> LaunchTable:
    """The launches of a report, with their metrics in base units.

    Args:
        path: a report of Nsight Compute, or a CSV file that it wrote; counters of rocprofv3 as CSV,
            JSON or rocpd; a table of rocprof-compute; or the folder of one of them.
        metrics: ids of the metrics to read, which takes less time and memory; None for all.

    Raises:
        RequestError: the file cannot be opened, or is no report of hardware counters.
        EnvironmentFailure: ``ncu`` cannot export it, where its library is missing.
    """
    table = _read_folder(path, metrics) if path.is_dir() else _read_file(path, metrics)
    if table is None:
        hint = _PRINTED_HINT if _is_printed(path) else _HINT
        if path.suffix == ".ncu-rep" and hint is _HINT:
            hint = (
                "It is no report of Nsight Compute, although it is named like one: copy it again."
            )
        raise RequestError(f"{path} has no hardware counters of kernels", hint=hint)
    return table


def _is_printed(path: Path) -> bool:
    """Whether a file contains what Nsight Compute prints on a terminal."""
    if path.is_dir():
        return False
    with open_decompressed(path) as file, suppress(OSError):
        return _PRINTED.search(file.read(_SEARCHED_BYTES)) is not None
    return False


def _read_file(path: Path, metrics: Collection[str] | None) -> LaunchTable | None:
    with open_decompressed(path) as file:
        start = file.read(len(MAGIC))
    if start == MAGIC:
        return _read_report(path, metrics)
    form = format_of(path)
    if isinstance(form, TraceFormat) and form.suffix != ".csv":
        return read_rocprofv3_file(path, form, metrics)
    # A table of rocprof-compute begins like those of rocprofv3.
    table = read_rocprof_compute(path, metrics)
    if table is None and isinstance(form, TraceFormat):
        table = read_rocprofv3_file(path, form, metrics)
    return table if table is not None else read_ncu_csv(path, metrics)


def _read_folder(folder: Path, metrics: Collection[str] | None) -> LaunchTable | None:
    """What a collection wrote, rocprofv3's files, or a workload of rocprof-compute."""
    reports = sorted(folder.glob("*.ncu-rep"))
    if len(reports) > 1:
        names = ", ".join(report.name for report in reports)
        raise RequestError(
            f"{folder} has {len(reports)} reports of Nsight Compute", hint=f"Give one: {names}"
        )
    if reports:
        return _read_report(reports[0], metrics)
    wide = folder / "pmc_perf.csv"
    if wide.is_file():
        return read_rocprof_compute(wide, metrics)
    return read_rocprofv3_folder(folder, metrics)


def _read_report(path: Path, metrics: Collection[str] | None) -> LaunchTable:
    exported = path.with_suffix(".csv")
    try:
        return _read_by_tool(path, metrics)
    except GemmetryError as error:
        table = read_ncu_csv(exported, metrics) if exported.is_file() else None
        if table is None:
            raise
        table.problems.append(
            f"{error.message}: {exported.name} next to it is read, which lacks the conclusions of "
            "rules and the samples of instructions"
        )
        return table


def _read_by_tool(path: Path, metrics: Collection[str] | None) -> LaunchTable:
    found = tool_path("ncu")
    executable = Path(found) if found is not None else None
    library = report_library(executable)
    if library is not None:
        return read_ncu_rep(path, library, metrics)
    if executable is not None:
        return read_by_export(path, executable, metrics)
    raise RequestError(
        f"{path} is a report of Nsight Compute, and nothing here reads it",
        hint="pip install 'gemmetry[counters]', or export it where Nsight Compute is installed: "
        "ncu --import FILE --page raw --csv > FILE.csv",
    )
