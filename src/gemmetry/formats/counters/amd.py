"""Counters of AMD's GPUs as launches: of rocprofv3, in any of its formats, and of rocprof-compute.

Values are sums over all instances of a counter (XCCs, shader engines, channels of a cache), as
rocprofv3 writes them into its CSV files. What is recorded of the launch and of the GPU are values
too, under the names of rocprofv3's columns in lower case, so that formulas can use them.

Tables of rocprof-compute (``pmc_perf.csv``) have a row per launch with the counters of all passes.
``sysinfo.csv`` next to it describes the GPU. A counter of the L2 cache has a column per channel,
``TCC_HIT[0]`` and so on. Columns of passes that repeat the launch's description have a number
behind their names.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from gemmetry.domain.opening import open_text
from gemmetry.formats.counters.launches import (
    DURATION,
    Columns,
    LaunchInfo,
    LaunchTable,
    Tool,
    Triple,
    integer,
    number,
)
from gemmetry.formats.events import MISSING
from gemmetry.formats.readers import TraceFormat
from gemmetry.formats.rocm.rocprofv3 import (
    CountedDispatch,
    CountedProcess,
    disagreement,
    grid_and_block,
    joined_values,
    read_counter_folder,
)
from gemmetry.formats.rocm.tables import CountedGpu, kernel_name

FACT_UNITS = {DURATION: "ns", "lds_block_size": "byte", "scratch_size": "byte"}

_Key: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...], int]
"""Kernel, grid, workgroup, and how often it had been launched before."""

_Launch: TypeAlias = tuple[CountedProcess, CountedDispatch]


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
    found = [one for one in processes if one.dispatches]
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


def _table(
    passes: Sequence[CountedProcess],
    problems: list[str],
    source: Path,
    metrics: Collection[str] | None,
    *,
    tool: Tool = "rocprofv3",
    version: str = "",
) -> LaunchTable:
    launches = _joined(passes, problems)
    values = [value for _, one in launches for value in one.values.values()]
    if launches and not values:
        problems.append("it has launches without counters: rocprofv3 collects those that its "
                        "option --pmc, or the key pmc of its input file, lists")  # fmt: skip
    elif launches and not any(values):
        problems.append("all counters are zero: rocprofv3 does not collect them on this GPU, or "
                        "another program uses them")  # fmt: skip
    columns = Columns(len(launches), metrics)
    infos = []
    for row, (process, one) in enumerate(launches):
        gpu = process.gpus.get(one.device)
        facts = {DURATION: one.duration_ns or None, **one.facts, **(gpu.facts if gpu else {})}
        for name, value in {**facts, **one.values}.items():
            columns.put(row, name, value, FACT_UNITS.get(name, ""))
        infos.append(LaunchInfo(
            name=one.kernel, grid=triple_of(one.grid), block=triple_of(one.block),
            device=gpu.product if gpu is not None else "",
            capability=gpu.chip if gpu is not None else "",
            number=one.number if one.number >= 0 else None, process=process.pid,
        ))  # fmt: skip
    return columns.table(tool, infos, version=version, source=source, problems=problems)


def _joined(passes: Sequence[CountedProcess], problems: list[str]) -> list[_Launch]:
    """The launches of each process over its passes, with the counters of all of them."""
    by_owner: dict[object, dict[_Key, _Launch]] = defaultdict(dict)
    counts: dict[object, set[int]] = defaultdict(set)
    differing: set[str] = set()
    for one in passes:
        owner = _owner(one, passes)
        launches = by_owner[owner]
        counts[owner].add(len(one.dispatches))
        before: Counter[tuple[str, tuple[int, ...], tuple[int, ...]]] = Counter()
        for dispatch in sorted(one.dispatches, key=lambda found: found.number):
            same = dispatch.kernel, dispatch.grid, dispatch.block
            key = (*same, before[same])
            before[same] += 1
            process, first = launches.get(key, (one, replace(dispatch, values={})))
            first.values = joined_values(first.values, dispatch.values, differing)
            launches[key] = process, first
    if any(len(numbers) > 1 for numbers in counts.values()):
        problems.append("the passes of rocprofv3 have different numbers of launches: those that "
                        "are missing in a pass lack its counters")  # fmt: skip
    problems += disagreement(differing)
    return [launch for launches in by_owner.values() for launch in launches.values()]


def _owner(process: CountedProcess, passes: Sequence[CountedProcess]) -> object:
    """What the processes of all passes have in common: those of different passes belong together by
    their rank, or if a pass has one only."""
    others = [other for other in passes if other.number == process.number]
    if process.number and len(others) == 1:
        return "alone"
    of_rank = [other for other in others if other.rank == process.rank]
    if process.number and process.rank is not None and len(of_rank) == 1:
        return "rank", process.rank
    return "file", id(process)


def triple_of(sizes: tuple[int, ...]) -> Triple | None:
    """Sizes by dimension; the product alone counts as that of x."""
    if not sizes:
        return None
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


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
"""Stepping of the chip after the product's name: ``MI300X_A1``."""
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
    processes: dict[int | None, CountedProcess] = {}
    with open_text(path) as text:
        rows = _rows(text, problems)
        header = next(rows, [])
        if not set(header) >= _NEEDED:
            return None
        system, counters = _system(path), _counters(header)
        gpus = {0: _gpu(system)}
        for cells in rows:
            row = dict(zip(header, cells, strict=True))
            pid = integer(row.get("PID", ""))
            process = processes.setdefault(pid, CountedProcess(pid=pid, gpus=gpus))
            process.dispatches.append(_dispatch(row, counters))
    version = system.get("version", "")
    return _table(
        list(processes.values()), problems, path, metrics, tool="rocprof-compute", version=version
    )


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


def _system(path: Path) -> Mapping[str, str]:
    """Content of ``sysinfo.csv``; {} if there is none."""
    own = path.with_name(path.name.replace("pmc_perf", "sysinfo"))
    found: dict[str, str] = {}
    if own != path and own.is_file():
        with open_text(own) as text, contextlib.suppress(csv.Error, OSError):
            found = next(csv.DictReader(text), found)
    return {name: value for name, value in found.items() if value}


def _gpu(system: Mapping[str, str]) -> CountedGpu:
    units, simds, xccs, waves = (
        integer(system.get(name, "")) or 0
        for name in ("cu_per_gpu", "simd_per_cu", "num_xcd", "max_waves_per_cu")
    )
    return CountedGpu(
        chip=system.get("gpu_arch", ""), product=_STEPPING.sub("", system.get("gpu_model", "")),
        units=units, simds=units * simds, xccs=xccs, waves_per_unit=waves,
    )  # fmt: skip


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


def _dispatch(row: Mapping[str, str], counters: Mapping[str, Sequence[str]]) -> CountedDispatch:
    values = {}
    for name, columns in counters.items():
        found = [value for column in columns if (value := number(row[column])) is not None]
        if len(found) == len(columns):
            values[name] = sum(found)
    facts = {name: fact for column, name in _FACTS.items()
             if (fact := _whole(row, column)) != MISSING}  # fmt: skip
    grid, block = grid_and_block((_whole(row, "Grid_Size"),), (_whole(row, "Workgroup_Size"),))
    start, end = (_whole(row, f"{what}_Timestamp") for what in ("Start", "End"))
    name = kernel_name(row["Kernel_Name"])
    dispatch = _whole(row, "Dispatch_ID")
    return CountedDispatch(dispatch, name, 0, grid, block, facts, start, end, values)


def _whole(row: Mapping[str, str], column: str) -> int:
    found = integer(row.get(column, ""))
    return MISSING if found is None else found
