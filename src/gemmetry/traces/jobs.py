"""Groups traces of several ranks into jobs, and finds missing ranks."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.domain.rows import Row, derived, fact
from gemmetry.traces.collectives.summary import Collective, collectives_of
from gemmetry.traces.model import Trace

APART_NS = 3600 * 10**9
"""Recordings of one step of one job overlap, so files of a folder that are more than an hour apart
belong to different jobs. Clocks of a cluster's nodes differ by far less."""

_RANK = re.compile(r"(?:\A|(?<=[^a-z]))rank[-_=]?(\d{1,6})(?!\d)", re.IGNORECASE)


class RankTrace(Row):
    """The information on communication in one trace file."""

    file: Path
    container: Path | None = None
    """The file, where it contains the traces of several ranks."""
    world_size: int | None
    job: str | None
    """The job's identifier in the trace."""
    host: str | None
    span: tuple[int, int]
    """First start and last end of work on GPUs, ns; (0, 0) without any."""
    devices: int = 0
    """Number of GPUs of the node; 0: unknown."""

    rank: int | None = fact("rank of the trace")
    collectives: tuple[Collective, ...] = fact("its communication kernels")
    source = derived("the trace", key="file", type=str)(lambda one: str(one.file))
    rank_source: str = fact("source of the rank")
    """``trace``, ``name`` (of the file or its folder), ``label`` (of a process in a file of
    several), or "" where none of them specifies the rank."""
    base_ns: int = fact("origin of the trace's times", "ns")
    partial: bool = fact("whether events of the file are missing")
    problems: tuple[str, ...] = fact("what could not be used, or is missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """Traces of one run, by rank."""

    name: str
    ranks: tuple[RankTrace, ...]
    world_size: int | None
    missing: tuple[int, ...]
    """Ranks of the job without a file."""
    notes: tuple[str, ...]

    @property
    def by_rank(self) -> dict[int, RankTrace]:
        """Traces by rank; every trace of a job has one."""
        return {one.rank: one for one in self.ranks if one.rank is not None}


def rank_trace(trace: Trace) -> RankTrace:
    """The information on communication in `trace`."""
    rows = trace.rows
    rank, source = rows.rank, "trace"
    if trace.of is not None:
        source = "label" if rank is not None else ""
    elif rank is None:
        rank, source = rank_of_path(trace.file)
    gpu = rows.gpu
    span = (0, 0)
    if len(gpu.start_ns):
        last = int((gpu.start_ns + gpu.duration_ns).max())
        span = (rows.base_ns + int(gpu.start_ns.min()), rows.base_ns + last)
    return RankTrace(
        file=trace.file,
        container=trace.of,
        rank=rank,
        rank_source=source,
        world_size=rows.world_size,
        job=rows.job,
        host=rows.host,
        base_ns=rows.base_ns,
        span=span,
        devices=len(rows.devices),
        collectives=tuple(collectives_of(trace)),
        partial=rows.partial,
        problems=tuple(map(str, rows.problems)),
    )


def group_jobs(traces: Iterable[RankTrace]) -> list[TraceJob]:
    """Groups traces of the same run.

    Traces with the same job identifier belong to one job. The others are grouped by folder (folders
    that differ only in a rank's number, ``rank0/``, ``rank1/``, count as one), by world size and,
    in a folder, by time (:data:`APART_NS`). A trace without a rank, or with a world size of one, is
    a job of its own.

    Raises:
        RequestError: a rank occurs twice in a job.
    """
    traces = list(traces)
    ranks: dict[str | None, set[int | None]] = defaultdict(set)
    for one in traces:
        if one.container is None:
            ranks[one.job].add(one.rank)
    groups: dict[tuple[object, ...], list[RankTrace]] = {}
    for one in traces:
        if one.container is not None and one.rank is not None:
            key: tuple[object, ...] = ("job", one.container)
        elif one.job and len(ranks[one.job]) > 1:
            key = ("job", one.job)
        elif one.rank is None or one.world_size == 1:
            key = ("file", one.file)
        else:
            key = ("folder", _folder(one.file), one.world_size)
        groups.setdefault(key, []).append(one)
    jobs: list[TraceJob] = []
    for key, members in groups.items():
        _refuse_twice(members)
        jobs += map(_job, [members] if key[0] == "job" else _by_time(members))
    return _with_distinct_names(jobs)


def rank_of_path(path: Path) -> tuple[int | None, str]:
    """The rank from the file's name, else from the nearest folder that contains one."""
    for part in (path.name, *reversed(path.absolute().parent.parts)):
        found = _RANK.findall(part)
        if found:
            return int(found[-1]), "name"
    return None, ""


def _folder(path: Path) -> str:
    return _RANK.sub("rank*", str(path.absolute().parent))


def _refuse_twice(traces: Sequence[RankTrace]) -> None:
    seen: dict[int | None, RankTrace] = {}
    for one in traces:
        other = seen.setdefault(one.rank, one)
        if other is not one:
            raise RequestError(
                f"rank {one.rank} occurs twice in one job: {other.file} and {one.file}",
                hint="Give one recording of each rank, or put each job's files in its own folder.",
            )


def _by_time(traces: Sequence[RankTrace]) -> list[list[RankTrace]]:
    """Parts that are more than an hour apart; traces without GPU work belong to the first."""
    parts: list[list[RankTrace]] = [[]]
    reached = 0
    for one in sorted((one for one in traces if one.span != (0, 0)), key=lambda one: one.span):
        if parts[-1] and one.span[0] - reached > APART_NS:
            parts.append([])
        reached = max(reached, one.span[1]) if parts[-1] else one.span[1]
        parts[-1].append(one)
    parts[0] += [one for one in traces if one.span == (0, 0)]
    return parts


def _job(traces: Sequence[RankTrace]) -> TraceJob:
    ranks = sorted(traces, key=lambda one: (one.rank is None, one.rank or 0))
    if len(ranks) == 1 and ranks[0].rank is None:
        ranks = [replace(ranks[0], rank=0)]
    sizes = sorted({one.world_size for one in ranks if one.world_size})
    notes = []
    if len(sizes) > 1:
        notes.append(f"the traces record different world sizes: {', '.join(map(str, sizes))}")
    if any(one.rank_source == "name" for one in ranks):
        notes.append("ranks come from the file names, as the traces do not record them")
    elif any(not one.rank_source for one in ranks):
        notes.append("the trace records no rank; rank 0 is assumed")
    notes += [
        f"{one.file.name} is partial: collectives of rank {one.rank} may be missing"
        for one in ranks
        if one.partial
    ]
    groups = {kernel.group.ranks for one in ranks for kernel in one.collectives if kernel.group}
    expected = set(range(max(sizes, default=0))).union(*groups)
    return TraceJob(
        name=_name(ranks),
        ranks=tuple(ranks),
        world_size=max(sizes, default=None),
        missing=tuple(sorted(expected - {one.rank for one in ranks})),
        notes=tuple(notes),
    )


def _name(ranks: Sequence[RankTrace]) -> str:
    """The folder of the job's files, or the file if there is only one."""
    if len(ranks) == 1:
        return str(ranks[0].file)
    if ranks[0].container is not None:
        return str(ranks[0].container)
    first = ranks[0].file.parent
    if len({_folder(one.file) for one in ranks}) > 1:
        return ranks[0].job or str(first)
    is_given = all(one.file.parent == first for one in ranks)
    return str(first if is_given else Path(_RANK.sub("rank*", str(first))))


def _with_distinct_names(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """Number the jobs of the same folder by the time of their first file."""
    names, numbers = Counter(job.name for job in jobs), Counter[str]()
    result = []
    for job in jobs:
        numbers[job.name] += 1
        more = f" ({numbers[job.name]})" if names[job.name] > 1 else ""
        result.append(replace(job, name=job.name + more))
    return result
