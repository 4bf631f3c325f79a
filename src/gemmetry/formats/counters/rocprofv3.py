"""Counters of rocprofv3, in any of its formats, as launches.

Values are sums over all instances of a counter (XCCs, shader engines, channels of a cache), as
rocprofv3 writes them into its CSV files. What it records of the launch and of the GPU are values
too, under the names of its columns in lower case, so that formulas can use them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from gemmetry.formats.counters.columns import Columns
from gemmetry.formats.counters.launches import DURATION, LaunchInfo, LaunchTable, Triple
from gemmetry.formats.readers import TraceFormat, rocpd, rocprofv3_csv, rocprofv3_json
from gemmetry.formats.rocm.counted import (
    CountedDispatch,
    CountedGpu,
    CountedProcess,
    disagreement,
    joined_values,
)
from gemmetry.formats.rocm.counter_folders import PassOfProcess, read_counter_folder
from gemmetry.formats.rocm.rocpd_counters import read_rocpd_counters
from gemmetry.formats.rocm.rocprofv3.counters import read_csv_counters
from gemmetry.formats.rocm.rocprofv3.json_counters import read_json_counters

_READERS: dict[str, Callable[[Path], Sequence[CountedProcess]]] = {
    rocprofv3_csv.FORMAT.name: lambda path: [read_csv_counters(path)],
    rocprofv3_json.FORMAT.name: read_json_counters,
    rocpd.FORMAT.name: read_rocpd_counters,
}

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
    read = _READERS.get(form.name)
    processes = read(path) if read is not None else []
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
