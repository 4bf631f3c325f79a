"""Counters of a point's kernels, which rocprofv3 collected: one row per kernel and grid of a rank.

rocprofv3 runs the training once for each pass. A pass has the counters of its job; figures that
need counters of several passes join them dispatch by dispatch. Ranks come from what the files
state, never from the order of the processes.
"""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from gemmetry.domain.tables import grouped
from gemmetry.formats.rocm.rocprofv3 import (
    CountedDispatch,
    CountedProcess,
    read_counter_folder,
)
from gemmetry.formats.rocm.tables import CountedGpu
from gemmetry.hardware.amd_counters import METRICS, AmdMetric, matrix_flop
from gemmetry.statistics.intervals import median
from gemmetry.sweeps.rows import RocprofKernel, RocprofMetrics

_MOST_PERCENT = 110
"""A share of time above this is not rounding of the counters, but counters that do not fit the
GPU's description."""

_UNKNOWN_GPU = CountedGpu(chip="", product="", units=1, simds=1, xccs=1, waves_per_unit=1)
"""For figures that do not depend on the GPU."""


_Owner: TypeAlias = tuple[str, str | int, int]
"""What the processes of all passes have in common: a rank, or a GPU of a host."""

_Key: TypeAlias = tuple[str, int, int]
"""Kernel, workgroups, work-items of a workgroup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProcess:
    """A process that has a trace of torch's profiler."""

    pid: int
    host: str
    """Host; "" where the trace does not name it."""
    rank: int


@dataclass(frozen=True, slots=True)
class PointRocprof:
    """Records of rocprofv3 for a point."""

    kernels: tuple[RocprofKernel, ...] = ()
    """Kernels by rank, those with the most time first."""
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _OwnerPasses:
    """The passes of one owner."""

    rank: int | None
    rank_source: str
    passes: list[CountedProcess] = field(default_factory=list)

    @property
    def name(self) -> str:
        """``rank 3``, else the process."""
        if self.rank is not None:
            return f"rank {self.rank}"
        pid = self.passes[0].pid
        return f"process {pid}" if pid is not None else "a process"


def read_point_rocprof(
    folders: Iterable[Path], traces: Sequence[TraceProcess] = ()
) -> PointRocprof:
    """Read the folders of rocprofv3's files.

    Args:
        traces: the processes of the point's traces, whose ranks are known.
    """
    passes: list[CountedProcess] = []
    problems: list[str] = []
    for folder in folders:
        found, failed = read_counter_folder(folder)
        passes += found
        problems += failed
        if not found:
            problems.append(f"{folder} has no kernels that rocprofv3 recorded")
    kernels = [row for group in _groups(passes, traces, problems) for row in _rows(group, problems)]
    return PointRocprof(tuple(sorted(kernels, key=_order)), tuple(dict.fromkeys(problems)))


def _order(one: RocprofKernel) -> tuple[bool, int, str, int, float]:
    time = one.count * (one.median_us or 0)
    return one.rank is None, one.rank or 0, one.host or "", one.device or 0, -time


def _groups(
    passes: Sequence[CountedProcess], traces: Sequence[TraceProcess], problems: list[str]
) -> list[_OwnerPasses]:
    for process in passes:
        ranks = {
            trace.rank
            for trace in traces
            if trace.pid == process.pid
            and (not trace.host or trace.host == process.host or not process.host)
        }
        if process.rank is None and len(ranks) == 1:
            process.rank, process.rank_source = ranks.pop(), "trace"
    # The GPUs that each rank used, for processes that only another pass numbers.
    of_gpu: dict[tuple[str, int], set[int]] = defaultdict(set)
    for one in passes:
        if one.rank is not None:
            for device in _devices(one):
                of_gpu[one.host, device].add(one.rank)
    sharing = Counter((one.number, one.host, d) for one in passes for d in _devices(one))
    groups: dict[_Owner, _OwnerPasses] = {}
    unknown = set()
    for process in passes:
        rank, source = process.rank, process.rank_source
        if rank is None:
            ranks = {r for device in _devices(process) for r in of_gpu[process.host, device]}
            rank, source = (ranks.pop(), "gpu") if len(ranks) == 1 else (None, "")
        if rank is None:
            unknown.add(process.pid)
        owner = ("rank", rank, 0) if rank is not None else _place(process, sharing)
        groups.setdefault(owner, _OwnerPasses(rank, source)).passes.append(process)
    if unknown:
        listed = ", ".join(str(pid) for pid in sorted(unknown, key=str))
        problems.append(
            f"rocprofv3's files do not state the rank of process {listed}; `gemmetry sweep run` "
            "names files by rank, and traces of torch's profiler of the same run identify processes"
        )
    for group in groups.values():
        _keep_one_process_a_pass(group, problems)
    return list(groups.values())


def _keep_one_process_a_pass(group: _OwnerPasses, problems: list[str]) -> None:
    """Files of an earlier attempt may lie next to those of the last."""
    by_number = grouped(group.passes, lambda one: one.number)
    group.passes = [max(same, key=lambda one: len(one.dispatches))
                    for same in by_number.values()]  # fmt: skip
    for kept, same in zip(group.passes, by_number.values(), strict=True):
        if len(same) > 1:
            pids = ", ".join(str(one.pid) for one in same)
            problems.append(
                f"{group.name} has files of several processes ({pids}); those of process "
                f"{kept.pid}, which has the most dispatches, are used"
            )


def _devices(process: CountedProcess) -> set[int]:
    return {one.device for one in process.dispatches if one.device >= 0}


def _place(process: CountedProcess, sharing: Mapping[tuple[int, str, int], int]) -> _Owner:
    """The GPU that the process has to itself, else the process."""
    devices = sorted(_devices(process))
    if len(devices) == 1 and sharing[process.number, process.host, devices[0]] == 1:
        return ("gpu", process.host, devices[0])
    return ("process", process.host, process.pid or 0)


def _rows(group: _OwnerPasses, problems: list[str]) -> list[RocprofKernel]:
    """One row for each kernel and grid."""
    by_key: dict[_Key, dict[int, list[CountedDispatch]]] = {}
    for place, one in enumerate(group.passes):
        for dispatch in sorted(one.dispatches, key=lambda d: d.number):
            key = (dispatch.kernel, dispatch.workgroups, dispatch.workgroup_size)
            by_key.setdefault(key, {}).setdefault(place, []).append(dispatch)
    rows = []
    differing = 0
    for key, found in by_key.items():
        having = [(group.passes[place], dispatches) for place, dispatches in found.items()]
        differing += len({len(dispatches) for _, dispatches in having}) > 1
        differing += len(having) < len(group.passes)
        rows.append(_row(group, key, having, problems))
    if differing:
        noun = "kernel has" if differing == 1 else "kernels have"
        problems.append(
            f"{group.name}: {differing} {noun} different numbers of dispatches in the passes of "
            "rocprofv3; counters of several passes are joined in the order of the dispatches"
        )
    return rows


def _row(
    group: _OwnerPasses,
    key: _Key,
    having: Sequence[tuple[CountedProcess, Sequence[CountedDispatch]]],
    problems: list[str],
) -> RocprofKernel:
    first, dispatches = having[0]
    sample = dispatches[0]
    gpu = first.gpus.get(sample.device)
    per_pass = [[one.values for one in found] for _, found in having]
    # The counters of a dispatch in all passes; of those in several, the first.
    joined = [dict(ChainMap(*map(dict, values))) for values in zip(*per_pass, strict=False)]
    times = [t for one in dispatches if (t := one.duration_ns) is not None]
    counters = sorted({name for found in per_pass for values in found for name in values})
    flop = [found for values in joined if (found := matrix_flop(values)) is not None]
    return RocprofKernel(
        rank=group.rank,
        rank_source=group.rank_source,
        pids=tuple(dict.fromkeys(p for one, _ in having if (p := one.pid) is not None)),
        host=first.host,
        device=_known(sample.device),
        chip=gpu.chip if gpu is not None else "",
        kernel=key[0],
        workgroups=_known(key[1]),
        workgroup_size=_known(key[2]),
        count=len(joined),
        passes=len(having),
        median_us=median(times) / 1e3 if times else None,
        is_serialised=any(one.has_counters for one, _ in having),
        lds_bytes=_most("lds_block_size", dispatches),
        scratch_bytes=_most("scratch_size", dispatches),
        vgprs=_most("vgpr_count", dispatches),
        accum_vgprs=_most("accum_vgpr_count", dispatches),
        sgprs=_most("sgpr_count", dispatches),
        metrics=RocprofMetrics(**{
            one.name: _metric(one, per_pass, joined, gpu, group.name, problems)
            for one in METRICS
        }),
        matrix_gflop=median(flop) / 1e9 if flop else None,
        counters={name: median(_values(name, per_pass)) for name in counters},
    )  # fmt: skip


def _values(counter: str, per_pass: Sequence[Sequence[Mapping[str, float]]]) -> list[float]:
    """Values of the first pass that has the counter."""
    found = ([one[counter] for one in values if counter in one] for values in per_pass)
    return next(filter(None, found))


def _metric(
    metric: AmdMetric,
    per_pass: Sequence[Sequence[Mapping[str, float]]],
    joined: Sequence[Mapping[str, float]],
    gpu: CountedGpu | None,
    owner: str,
    problems: list[str],
) -> float | None:
    """The median over dispatches, from one pass that has all counters if there is one."""
    for values in (*per_pass, joined):
        collected = [one[metric.collected_as] for one in values if metric.collected_as in one]
        if collected:
            return median(collected)
        having = [one for one in values if all(name in one for name in metric.counters)]
        if not having:
            continue
        if gpu is None and metric.needs_time:
            problems.append(
                f"{owner}: rocprofv3's agent_info.csv is missing: without the number of compute "
                "units, counters give no percentages"
            )
            return None
        found = []
        for one in having:
            with suppress(ZeroDivisionError):
                if (value := metric.formula(one, gpu or _UNKNOWN_GPU)) is not None:
                    found.append(value)
        if not found:
            return None
        figure = median(found)
        if metric.unit == "%" and figure > _MOST_PERCENT:
            problems.append(
                f"{owner}: {metric.name} would be {figure:.0f} %: the counters do not fit the GPU "
                "that rocprofv3 describes"
            )
            return None
        return figure
    return None


def _most(fact: str, dispatches: Sequence[CountedDispatch]) -> int | None:
    return max((one.facts[fact] for one in dispatches if fact in one.facts), default=None)


def _known(value: int) -> int | None:
    return value if value >= 0 else None
