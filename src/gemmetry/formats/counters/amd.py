"""Counters of rocprofv3, in any of its formats, as launches.

Values are sums over all instances of a counter (XCCs, shader engines, channels of a cache), as
rocprofv3 writes them into its CSV files. What it records of the launch and of the GPU are values
too, under the names of its columns in lower case, so that formulas can use them.

Tables of rocprof-compute (``pmc_perf.csv``): a row per launch with the counters of all passes.

``sysinfo.csv`` next to it describes the GPU. A counter of the L2 cache has a column per channel,
``TCC_HIT[0]`` and so on; its value is their sum, as rocprofv3 counts it. Columns of passes that
repeat the launch's description have a number behind their names.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from gemmetry.domain.opening import open_text
from gemmetry.formats.counters.launches import (
    DURATION,
    Columns,
    LaunchInfo,
    LaunchTable,
    Triple,
    integer,
    number,
)
from gemmetry.formats.events import MISSING
from gemmetry.formats.readers import TraceFormat
from gemmetry.formats.rocm.rocprofv3 import (
    CountedDispatch,
    CountedProcess,
    PassOfProcess,
    disagreement,
    grid_and_block,
    joined_values,
    read_counter_folder,
)
from gemmetry.formats.rocm.tables import CountedGpu, kernel_name

GPU_FACTS = ("cu_count", "simd_count", "num_xcc", "max_waves_per_cu")
"""Ids of what is recorded of the GPU."""

FACT_UNITS = {DURATION: "ns", "lds_block_size": "byte", "scratch_size": "byte"}

_Owner: TypeAlias = tuple[str, str | int | None]
"""What the processes of all passes have in common."""

_Key: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...], int]
"""Kernel, grid, workgroup, and how often it had been launched before."""


def read_rocprofv3_file(
    path: Path, form: TraceFormat, metrics: Collection[str] | None = None
) -> LaunchTable | None:
    """The launches of a file of rocprofv3: ``counter_collection.csv`` with the files of the same
    process next to it, ``results.json``, or a rocpd database.

    Args:
        form: the file's format.
        metrics: ids of those to keep; None for all.

    Returns:
        None if the format is not one of rocprofv3, or the file has no kernels.

    Raises:
        RequestError: the file cannot be opened.
    """
    processes = form.counters(path)
    problems = [problem for one in processes for problem in one.problems]
    found = [PassOfProcess(0, one) for one in processes if one.dispatches]
    return _table(found, problems, path, metrics) if found else None


def read_rocprofv3_folder(
    folder: Path, metrics: Collection[str] | None = None
) -> LaunchTable | None:
    """The launches that rocprofv3 recorded below a folder, with the counters of all its passes.

    A pass is a run of the application: the n-th launch of a kernel with the same grid in one pass
    is that of another. Its time is that of the first pass, and so is a counter of several passes.

    Args:
        metrics: ids of those to keep; None for all.

    Returns:
        None if there are no kernels of rocprofv3.
    """
    found, problems = read_counter_folder(folder)
    return _table(found, problems, folder, metrics) if found else None


@dataclass(slots=True)
class _CountedLaunch:
    """A dispatch with the counters of all passes."""

    process: CountedProcess
    dispatch: CountedDispatch
    values: dict[str, float] = field(default_factory=dict)

    @property
    def gpu(self) -> CountedGpu | None:
        return self.process.gpus.get(self.dispatch.device)


def _table(
    passes: Sequence[PassOfProcess],
    problems: list[str],
    source: Path,
    metrics: Collection[str] | None,
) -> LaunchTable:
    launches = _joined(passes, problems)
    problems += _doubts(launches)
    columns = Columns(len(launches), metrics)
    for row, one in enumerate(launches):
        for name, value in {**_facts(one), **one.values}.items():
            columns.put(row, name, value, FACT_UNITS.get(name, ""))
    infos = [_info(one) for one in launches]
    return columns.table("rocprofv3", infos, source=source, problems=problems)


def _joined(passes: Sequence[PassOfProcess], problems: list[str]) -> list[_CountedLaunch]:
    """The launches of each process over its passes."""
    by_owner: dict[_Owner, dict[_Key, _CountedLaunch]] = {}
    counts: dict[_Owner, set[int]] = {}
    differing: set[str] = set()
    for one in passes:
        owner = _owner(one, passes)
        launches = by_owner.setdefault(owner, {})
        counts.setdefault(owner, set()).add(len(one.process.dispatches))
        before: Counter[tuple[str, tuple[int, ...], tuple[int, ...]]] = Counter()
        for dispatch in sorted(one.process.dispatches, key=lambda found: found.number):
            same = dispatch.kernel, dispatch.grid, dispatch.block
            key = (*same, before[same])
            before[same] += 1
            launch = launches.setdefault(key, _CountedLaunch(one.process, dispatch))
            launch.values = joined_values(launch.values, dispatch.values, differing)
    if any(len(numbers) > 1 for numbers in counts.values()):
        problems.append("the passes of rocprofv3 have different numbers of launches: those that "
                        "are missing in a pass lack its counters")  # fmt: skip
    problems += disagreement(differing)
    return [launch for launches in by_owner.values() for launch in launches.values()]


def _owner(one: PassOfProcess, passes: Sequence[PassOfProcess]) -> _Owner:
    """Processes of different passes belong together by their rank, or if a pass has one only."""
    process = one.process
    if one.number == 0:
        return "file", id(process)
    others = [other.process for other in passes if other.number == one.number]
    if len(others) == 1:
        return "alone", None
    if process.rank is not None and sum(other.rank == process.rank for other in others) == 1:
        return "rank", process.rank
    return "file", id(process)


def _doubts(launches: Sequence[_CountedLaunch]) -> list[str]:
    """Why the counters, as a whole, may not mean anything."""
    values = [value for one in launches for value in one.values.values()]
    if not values:
        return ["it has launches without counters: rocprofv3 collects those that its option "
                "--pmc, or the key pmc of its input file, lists"]  # fmt: skip
    if not any(values):
        return ["all counters are zero: rocprofv3 does not collect them on this GPU, or another "
                "program uses them"]  # fmt: skip
    return []


def _facts(one: _CountedLaunch) -> Mapping[str, float | None]:
    """What rocprofv3 records of the launch and of its GPU."""
    dispatch, gpu = one.dispatch, one.gpu
    found: dict[str, float | None] = {
        DURATION: dispatch.duration_ns or None,
        "lds_block_size": _known(dispatch.lds_bytes),
        "scratch_size": _known(dispatch.scratch_bytes),
        "vgpr_count": _known(dispatch.vgprs),
        "accum_vgpr_count": _known(dispatch.accum_vgprs),
        "sgpr_count": _known(dispatch.sgprs),
    }
    if gpu is not None:
        facts = gpu.units, gpu.simds, gpu.xccs, gpu.waves_per_unit
        found |= dict(zip(GPU_FACTS, facts, strict=True))
    return found


def _info(one: _CountedLaunch) -> LaunchInfo:
    dispatch, gpu = one.dispatch, one.gpu
    return LaunchInfo(
        name=dispatch.kernel,
        grid=triple_of(dispatch.grid),
        block=triple_of(dispatch.block),
        device=gpu.product if gpu is not None else "",
        capability=gpu.chip if gpu is not None else "",
        number=_known(dispatch.number),
        process=one.process.pid,
    )


def triple_of(sizes: tuple[int, ...]) -> Triple | None:
    """Sizes by dimension; the product alone counts as that of x."""
    if not sizes:
        return None
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _known(value: int) -> int | None:
    return value if value >= 0 else None


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
    grid, block = grid_and_block((_whole(row["Grid_Size"]),), (_whole(row["Workgroup_Size"]),))
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
