"""Tables of rocprof-compute (``pmc_perf.csv``): a row per launch with the counters of all passes.

``sysinfo.csv`` next to it describes the GPU. A counter of the L2 cache has a column per channel,
``TCC_HIT[0]`` and so on; its value is their sum, as rocprofv3 counts it. Columns of passes that
repeat the launch's description have a number behind their names.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from gemmetry.formats.counters.cells import integer, number
from gemmetry.formats.counters.columns import Columns
from gemmetry.formats.counters.launches import DURATION, LaunchInfo, LaunchTable
from gemmetry.formats.counters.rocprofv3 import FACT_UNITS, GPU_FACTS, triple_of
from gemmetry.formats.events import MISSING
from gemmetry.formats.opening import open_text
from gemmetry.formats.rocm.counted import grid_and_block
from gemmetry.formats.rocm.rows import kernel_name

_NEEDED = {"Dispatch_ID", "GPU_ID", "Grid_Size", "Workgroup_Size", "Kernel_Name"}
_FACTS = {
    "LDS_Per_Workgroup": "lds_block_size", "Scratch_Per_Workitem": "scratch_size",
    "Arch_VGPR": "vgpr_count", "Accum_VGPR": "accum_vgpr_count", "SGPR": "sgpr_count",
}  # fmt: skip
"""Column -> id of what rocprofv3 records too."""

_OTHERS = _NEEDED | {"Wave_Size", "Correlation_ID", "XCC_Index", "Kernel_ID", "Start_Timestamp",
                     "End_Timestamp", "Queue_ID", "PID", "TID"}  # fmt: skip
_REPEATED = re.compile(r"_\d+\Z")
_STEPPING = re.compile(r"_[AB]\d\Z")
"""Of the chip, behind the product's name: ``MI300X_A1``."""
_CHANNEL = re.compile(r"\[\d+\]\Z")


def read_rocprof_compute(path: Path, metrics: Collection[str] | None = None) -> LaunchTable | None:
    """The launches of a table.

    Args:
        metrics: ids of those to keep; None for all.

    Returns:
        None if the file is no such table.

    Raises:
        RequestError: the file cannot be opened.
    """
    problems: list[str] = []
    with open_text(path) as text:
        rows = _rows(text, problems)
        header = next(rows, [])
        if not set(header) >= _NEEDED:
            return None
        gpu = _gpu(path)
        counters = _counters(header)
        launches = [_launch(dict(zip(header, row, strict=True)), counters, gpu) for row in rows]
    columns = Columns(len(launches), metrics)
    for row, (_, values) in enumerate(launches):
        for name, value in values.items():
            columns.put(row, name, value, FACT_UNITS.get(name, ""))
    infos = [info for info, _ in launches]
    version = gpu.get("version", "")
    return columns.table("rocprof-compute", infos, version=version, source=path, problems=problems)


def _rows(text: Iterator[str], problems: list[str]) -> Iterator[list[str]]:
    """The header and the rows that have as many fields."""
    reader = csv.reader(text)
    width = 0
    try:
        for row in reader:
            width = width or len(row)
            if len(row) == width:
                yield row
            elif row:
                problems.append(f"line {reader.line_num} has {len(row)} fields instead of {width}: "
                                "left out")  # fmt: skip
    except (csv.Error, OSError) as error:
        problems.append(f"the file cannot be read beyond line {reader.line_num}: {error}")


def _gpu(path: Path) -> Mapping[str, str]:
    """What ``sysinfo.csv`` states; {} if there is none."""
    beside = path.with_name(path.name.replace("pmc_perf", "sysinfo"))
    if beside == path or not beside.is_file():
        return {}
    found: dict[str, str] = {}
    with open_text(beside) as text, contextlib.suppress(csv.Error, OSError):
        found = next(csv.DictReader(text), found)
    units, simds = number(found.get("cu_per_gpu") or ""), number(found.get("simd_per_cu") or "")
    facts = {"cu_count": found.get("cu_per_gpu"), "num_xcc": found.get("num_xcd"),
             "max_waves_per_cu": found.get("max_waves_per_cu"),
             "simd_count": str(units * simds) if units and simds else None}  # fmt: skip
    return {name: value for name, value in {**found, **facts}.items() if value}


def _counters(header: Sequence[str]) -> dict[str, list[str]]:
    """Counter -> its columns, of which there is one, or one for each channel."""
    found: dict[str, list[str]] = {}
    for column in header:
        if column not in _FACTS and _REPEATED.sub("", column) not in _OTHERS:
            found.setdefault(_CHANNEL.sub("", column), []).append(column)
    for name, columns in list(found.items()):
        if columns != [name]:
            found.setdefault(f"{name}_sum", columns)
    return found


def _launch(
    row: Mapping[str, str], counters: Mapping[str, Sequence[str]], gpu: Mapping[str, str]
) -> tuple[LaunchInfo, dict[str, float | None]]:
    values: dict[str, float | None] = {DURATION: _duration(row)}
    values |= {name: number(row.get(column, "")) for column, name in _FACTS.items()}
    values |= {name: number(gpu[name]) for name in GPU_FACTS if name in gpu}
    for name, columns in counters.items():
        found = [value for column in columns if (value := number(row[column])) is not None]
        values[name] = sum(found) if len(found) == len(columns) else None
    grid, block = grid_and_block([_whole(row["Grid_Size"])], [_whole(row["Workgroup_Size"])])
    info = LaunchInfo(
        name=kernel_name(row["Kernel_Name"]),
        grid=triple_of(grid),
        block=triple_of(block),
        device=_STEPPING.sub("", gpu.get("gpu_model", "")),
        capability=gpu.get("gpu_arch", ""),
        number=integer(row["Dispatch_ID"]),
        process=integer(row.get("PID", "")),
    )
    return info, values


def _duration(row: Mapping[str, str]) -> float | None:
    """In ns; None where the times are missing, or rounded as spreadsheets do it."""
    start, end = (integer(row.get(f"{what}_Timestamp", "")) for what in ("Start", "End"))
    return end - start if start is not None and end is not None and end > start else None


def _whole(text: str) -> int:
    found = integer(text)
    return MISSING if found is None else found
