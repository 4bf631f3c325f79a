"""The collectives of a point: latency and bus bandwidth by operation and size, NCCL's own records
of them (NCCL Inspector), and which rank delays the others in them.

All ranks leave a collective together, so what follows in one step depends on what came before, and
only steps count as observations of a straggler.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import grouped
from gemmetry.formats.nccl import (
    InspectorRecord,
    inspector_files,
    inspector_records,
    is_inspector_file,
)
from gemmetry.statistics.intervals import median, median_interval
from gemmetry.statistics.runs import student_quantile
from gemmetry.sweeps.folder import Point
from gemmetry.sweeps.gemms import Floats
from gemmetry.sweeps.ranks import RankFacts
from gemmetry.sweeps.rows import (
    CONFIDENCE,
    DELAYS,
    NO_DELAY_SHOWN,
    UNDECIDED,
    PointCollective,
    PointStraggler,
    RecordedCollective,
)
from gemmetry.traces.collectives.alignment import Matched
from gemmetry.traces.collectives.matching import JobCollectives, JobKind, analyse_job
from gemmetry.traces.collectives.summary import bus_factor
from gemmetry.traces.jobs import RankTrace, TraceJob, group_jobs
from gemmetry.traces.joins import union

CollectiveKey = tuple[str | None, int | None, int | None]
"""Operation, bytes of the whole message, number of ranks."""

kind_of: Callable[[Matched], CollectiveKey] = attrgetter("op", "bytes", "group_size")


def _communication_trace(facts: RankFacts) -> RankTrace:
    """Collectives of a trace. Copies between GPUs are left out: nothing shows to which collective
    one belongs."""
    kernels = (one.collective for one in facts.communication)
    same = ("rank", "rank_source", "world_size", "job", "host", "base_ns", "span", "partial",
            "problems")  # fmt: skip
    return RankTrace(
        file=Path(facts.file),
        devices=facts.gpus_of_node,
        collectives=tuple(one for one in kernels if one.op != "copy"),
        **{name: getattr(facts, name) for name in same},
    )


def matched_job(ranks: Sequence[RankFacts]) -> JobCollectives:
    """The collectives of a point's ranks, matched.

    Of several traces of one rank, which a damaged sweep may have, the first is used, and of traces
    that belong to different runs those of the run with the most ranks.
    """
    traces: dict[int | None, RankTrace] = {}
    for facts in ranks:
        traces.setdefault(facts.rank, _communication_trace(facts))
    jobs = group_jobs(traces.values())
    if not jobs:
        return analyse_job(TraceJob(name="", ranks=(), world_size=None, missing=(), notes=()))

    def size(job: TraceJob) -> tuple[int, int]:
        """Ranks that communicate, and all of them."""
        return sum(bool(one.collectives) for one in job.ranks), len(job.ranks)

    return analyse_job(max(jobs, key=size))


def point_collectives(job: JobCollectives) -> tuple[PointCollective, ...]:
    """The collectives of a point, those with the most time first; () without any."""
    return tuple(map(_collective, job.kinds))


def _collective(kind: JobKind) -> PointCollective:
    return PointCollective(
        op=kind.op,
        dtype=kind.dtype,
        bytes=kind.bytes,
        group_size=kind.group_size,
        count=kind.count,
        latency_us=kind.latency_us_median,
        busbw_gbps=kind.busbw_gbps_median,
        duration_us=kind.duration_us_median,
        is_complete=kind.complete,
    )


def read_records(point: Point, problems: list[str]) -> Iterator[InspectorRecord]:
    """All records of NCCL Inspector in the folder of a point; what cannot be read is added to
    `problems`."""
    if point.outcome == "not_run":  # Its folder is the sweep's.
        return
    for path in inspector_files(point.folder):
        try:
            if is_inspector_file(path):
                yield from inspector_records(path, problems)
        except RequestError as error:
            problems.append(error.message)


def recorded_collectives(
    records: Iterable[InspectorRecord], job: JobCollectives
) -> tuple[RecordedCollective, ...]:
    """The records by operation, size and ranks, those with the most time first, next to the matched
    collectives of the same kind in the traces."""
    kinds: dict[CollectiveKey, _Kind] = {}
    for one in records:
        key = (one.operation, one.bytes, one.ranks)
        kinds.setdefault(key, _Kind(one)).add(one)
    traced = grouped(job.matching.matched, kind_of)
    found = [one.result([matched.latency_ns / 1e3 for matched in traced.get(key, [])])
             for key, one in kinds.items()]  # fmt: skip
    return tuple(sorted(found, key=lambda one: -sum(one.latencies_us)))


class _Kind:
    """The records of one kind while they are read."""

    def __init__(self, first: InspectorRecord) -> None:
        self.first = first
        self.shortest: dict[tuple[object, ...], float] = {}
        """Collective -> the shortest duration on any rank."""
        self.records: Counter[tuple[object, ...]] = Counter()
        self.channels: Counter[int] = Counter()
        self.timing: Counter[str] = Counter()

    def add(self, one: InspectorRecord) -> None:
        number = one.sequence if one.sequence is not None else -1 - self.timing.total()
        collective = (one.communicator, number, one.peer)
        duration = one.duration_us
        self.shortest[collective] = min(duration, self.shortest.get(collective, duration))
        self.records[collective] += 1
        self.timing[one.timing] += 1
        if one.channels:
            self.channels[one.channels] += 1

    def result(self, traced: Sequence[float]) -> RecordedCollective:
        first, latencies = self.first, tuple(self.shortest.values())
        traced_us, middle = median(traced) if traced else None, median(latencies)
        low, high = median_interval(latencies, 0.95) or (None, None)
        return RecordedCollective(
            operation=first.operation,
            bytes=first.bytes,
            ranks=first.ranks,
            nodes=first.nodes,
            count=len(latencies),
            is_complete=all(count >= first.ranks for count in self.records.values()),
            timing=self.timing.most_common(1)[0][0],
            channels=self.channels.most_common(1)[0][0] if self.channels else None,
            latencies_us=latencies,
            latency_us=middle,
            low=low,
            high=high,
            busbw_gbps=_bandwidth(first, middle),
            traced_count=len(traced),
            traced_latency_us=traced_us,
            traced_busbw_gbps=_bandwidth(first, traced_us),
        )


def _bandwidth(kind: InspectorRecord, latency_us: float | None) -> float | None:
    factor = bus_factor(kind.operation, kind.ranks)
    if factor is None or not latency_us:
        return None
    return kind.bytes * factor / latency_us / 1e3


FEWEST_STEPS = 3
"""Fewer steps in a row do not show that a rank delays the others: whoever happens to be last in
both of two steps would be named too often where delays are not normally distributed."""

_RELEVANT = 0.01
"""Delays below this share of a step are not worth a name."""

EXPLAINED = 0.5
"""A cause is named if it accounts for at least this share of the delay."""

IDLE = "idle: the host submits its work late"
EVERYWHERE = "all kernels: its GPU computes more slowly"

Kernels = dict[str, Floats]
"""Kernel -> its times in each step, in ns."""


class Lateness(NamedTuple):
    """Delays by rank and step, in ns."""

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    """Numbers of the steps that every rank has, ascending."""
    delays: Floats
    """(ranks, steps): time in which all others wait for this rank alone, from the second to last
    start to its own, in collectives that it enters last. Simultaneous waits count once."""
    window_ns: float
    """The median step of all ranks."""

    def of(self, rank: int) -> Floats:
        """The delays by one rank, in each step."""
        return np.asarray(self.delays[self.ranks.index(rank)])

    def excess(self, rank: int) -> Floats:
        """Delay that the rank causes beyond that of any other rank, in each step."""
        place = self.ranks.index(rank)
        return np.asarray(self.delays[place] - np.delete(self.delays, place, axis=0).max(axis=0))


def find_lateness(job: JobCollectives, ranks: Sequence[RankFacts]) -> Lateness:
    """The delays of all ranks in the steps that they have in common."""
    of_job = {facts.rank: facts for facts in reversed(ranks) if facts.rank in job.job.by_rank}
    numbers = [{step.number for step in facts.steps} for facts in of_job.values()]
    steps = sorted(set.intersection(*numbers)) if numbers else []
    places = {number: place for place, number in enumerate(steps)}
    listed = sorted(job.job.by_rank)
    row_of = {rank: place for place, rank in enumerate(listed)}
    step_of = _steps_of(of_job.values())
    waits: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for one in job.matching.matched:
        starts = sorted(
            (kernel.start_ns + job.offsets_ns.get(rank, 0), rank, kernel.row)
            for rank, kernel in one.members
        )
        if len(starts) > 1:
            end, last, row = starts[-1]
            place = places.get(step_of.get((last, row), -1))
            if place is not None:
                waits.setdefault((row_of[last], place), []).append((starts[-2][0], end))
    delays = np.zeros((len(listed), len(steps)))
    for cell, found in waits.items():
        begin, until = np.array(found, np.int64).T
        delays[cell] = union(begin, until - begin).length
    windows = [step.window_ns for facts in of_job.values() for step in facts.steps]
    window = median(windows) if windows else 0.0
    return Lateness(tuple(listed), tuple(steps), delays, window)


def _steps_of(ranks: Iterable[RankFacts]) -> dict[tuple[int | None, int], int]:
    """Rank and row of a communication kernel -> number of its step."""
    return {
        (facts.rank, one.collective.row): one.step for facts in ranks for one in facts.communication
    }


def rank_waits(
    job: JobCollectives, ranks: Sequence[RankFacts]
) -> dict[tuple[int | None, int], int]:
    """Rank and number of a step -> how long the rank waits for the last one in its matched
    collectives of the step, in ns; without ranks and steps that have none."""
    step_of = _steps_of(reversed(ranks))
    found: dict[tuple[int | None, int], int] = {}
    for one in job.matching.matched:
        waits = one.waits_ns(job.offsets_ns)
        for rank, kernel in one.members if len(waits) > 1 else ():
            cell = rank, step_of.get((rank, kernel.row), -1)
            found[cell] = found.get(cell, 0) + waits[rank]
    return found


def lower_bound(values: Floats, family: int) -> float:
    """The lower end of Student's one-sided interval of the mean, for one of `family` comparisons
    (Bonferroni); -inf for a single value."""
    if len(values) < 2:
        return -math.inf
    share = 1 - (1 - CONFIDENCE) / family
    reach = student_quantile(share, len(values) - 1) * float(np.std(values, ddof=1))
    return float(np.mean(values)) - reach / math.sqrt(len(values))


def delays_since(excess: Floats, family: int, relevant_ns: float) -> int | None:
    """Index of the step from which on a rank delays the others; None if none is shown.

    The longest run of steps up to the last one whose mean excess is shown to be above 0, and is at
    least `relevant_ns`; it begins with the first step after which every one has more than half of
    the run's median. Steps are taken as independent and about normally distributed.
    """
    starts = len(excess) - FEWEST_STEPS + 1
    for start in range(starts):
        run = excess[start:]
        if lower_bound(run, family * starts) > 0 and float(np.mean(run)) >= relevant_ns:
            low = np.flatnonzero(run <= median(run) / 2)
            begin = start + (int(low[-1]) + 1 if len(low) else 0)
            if begin < len(excess):  # else the last step is no delay
                return begin
    return None


def _excess(own: Floats, others: Sequence[Floats]) -> Floats:
    """`own` less the median of other ranks, in each step."""
    return np.asarray(own - np.median(np.array(others, np.float64), axis=0))


class LostTime(NamedTuple):
    """Excess time of a rank over the others, and its cause."""

    cause: str
    """A kernel, :data:`IDLE` or :data:`EVERYWHERE`."""
    per_step: Floats
    """Delay in each step, in ns."""


def _by_rank(ranks: Sequence[RankFacts]) -> dict[int, RankFacts]:
    return {facts.rank: facts for facts in reversed(ranks) if facts.rank is not None}


def find_lost_time(
    rank: int, ranks: Sequence[RankFacts], steps: Sequence[int], begin: int, delay_ns: float
) -> LostTime | None:
    """The cause of a rank's median delay of `delay_ns` in ``steps[begin:]``, with its times in all
    `steps`; None if none is shown.

    It is the kernel whose time exceeds that of the other ranks the most, then time without work,
    then all kernels together.
    """
    by_rank = _by_rank(ranks)
    if len(by_rank) < 2:
        return None
    tables = {one: _by_kernel(facts, steps) for one, facts in by_rank.items()}
    alone = _own_kernels(tables)
    ignored = alone[rank] if _only_names_differ(alone, rank, EXPLAINED * delay_ns) else {}
    own, others = tables[rank], [table for one, table in tables.items() if one != rank]
    family = max(1, len(own)) * len(by_rank)
    kernels = []
    for name, times in own.items():
        excess = _excess(times, [one.get(name, np.zeros(len(steps))) for one in others])
        if lower_bound(excess[begin:], family) > 0 and name not in ignored:
            kernels.append(LostTime(name, excess))
    kernels.sort(key=lambda one: -float(np.mean(one.per_step[begin:])))
    # Who is busy for less of the same window is idle for longer.
    for cause, field, sign in ((IDLE, "busy_ns", -1), (EVERYWHERE, "compute_ns", 1)):
        of_ranks = {one: _in_steps(facts, steps, field) for one, facts in by_rank.items()}
        mine = of_ranks.pop(rank)
        kernels.append(LostTime(cause, sign * _excess(mine, list(of_ranks.values()))))
    least = EXPLAINED * delay_ns
    return next((one for one in kernels if float(np.mean(one.per_step[begin:])) >= least), None)


def _most_cost(rank: int, ranks: Sequence[RankFacts], steps: Sequence[int]) -> float:
    """Upper limit of the cost of `rank`'s delays to other ranks in the mean step, in ns: the time
    in which they do not compute. Collectives that are launched ahead, as FSDP's are, wait for
    longer."""
    by_rank = _by_rank(ranks)
    longest = np.max([_in_steps(one, steps, "window_ns") for one in by_rank.values()], axis=0)
    del by_rank[rank]
    compute = [_in_steps(one, steps, "compute_ns") for one in by_rank.values()]
    return float(np.mean(longest - np.median(compute, axis=0)))


def find_own_kernel(
    rank: int, ranks: Sequence[RankFacts], steps: Sequence[int], begin: int, delays: Floats
) -> LostTime | None:
    """The kernel that no other rank runs and that accounts for half of the rank's delay in each of
    ``steps[begin:]``, with its times in all `steps`; None without one.

    It needs no interval: that one rank alone runs a kernel is no chance.
    """
    least = EXPLAINED * delays
    alone = _own_kernels({one: _by_kernel(f, steps) for one, f in _by_rank(ranks).items()})
    if _only_names_differ(alone, rank, float(least[begin:].min())):
        return None
    found = [
        LostTime(name, times)
        for name, times in alone[rank].items()
        if bool((times[begin:] >= least[begin:]).all())
    ]
    return max(found, key=lambda one: float(np.mean(one.per_step)), default=None)


def _own_kernels(tables: Mapping[int, Kernels]) -> dict[int, Kernels]:
    """Kernels of each rank that no other rank runs."""
    users = Counter(name for table in tables.values() for name in table if table[name].any())
    return {
        rank: {name: times for name, times in table.items() if users[name] == 1 and times.any()}
        for rank, table in tables.items()
    }


def _only_names_differ(alone: Mapping[int, Kernels], rank: int, least_ns: float) -> bool:
    """Whether another rank also has a kernel to itself that takes at least so long in the mean
    step: then names contain the rank, and show nothing about what it does."""
    return any(
        float(np.mean(times)) >= least_ns
        for other, kernels in alone.items()
        if other != rank
        for times in kernels.values()
    )


def _by_kernel(facts: RankFacts, steps: Sequence[int]) -> Kernels:
    places = {step.number: place for place, step in enumerate(facts.steps)}
    rows = [places[number] for number in steps]
    table = facts.kernel_times.per_step[rows].astype(np.float64)
    return dict(zip(facts.kernel_times.names, table.T, strict=True))


def _in_steps(facts: RankFacts, steps: Sequence[int], field: str) -> Floats:
    by_number = {step.number: getattr(step, field) for step in facts.steps}
    return np.array([by_number[number] for number in steps], np.float64)


def stragglers(ranks: Sequence[RankFacts], job: JobCollectives) -> list[PointStraggler]:
    """Every rank of a point with a trace, by number; [] where no collective is matched.

    A rank counts as a straggler if in each step, from some step on, the others wait for it alone
    longer than for any other rank, by a mean that is shown to be above 0, and by 1 % of a step at
    least; or if it delays the others most, by 1 % of a step at least, and a kernel that is shown to
    take it more time than them accounts for half of that; or if it does so in every step, and a
    kernel that no other rank runs accounts for half of it each time. On 4x H200 ranks take turns:
    in 8 recordings of FSDP with 3 steps each, the rank that delayed the others most, by up to 9 %
    of a step, changed from step to step, and no rank counts.

    `job` is that of :func:`matched_job` of the same ranks.
    """
    if not job.matching.matched:
        return []
    lateness = find_lateness(job, ranks)
    is_comparable = bool(lateness.steps) and len(lateness.ranks) > 1
    return [
        PointStraggler(
            rank=one.rank,
            collectives=one.collectives,
            last_share=one.last_share,
            waited_us=one.waited_ns / 1e3,
            **(_shown(one.rank, lateness, ranks) if is_comparable else {}),
        )
        for one in job.stragglers(corrected=True)
    ]


def _shown(rank: int, lateness: Lateness, ranks: Sequence[RankFacts]) -> dict[str, Any]:
    """The fields of :class:`PointStraggler` that follow from the steps."""
    delays, excess = lateness.of(rank), lateness.excess(rank)
    found: dict[str, Any] = {"delayed_us": median(delays) / 1e3}
    relevant, family = _RELEVANT * lateness.window_ns, len(lateness.ranks)
    begin = delays_since(excess, family, relevant)
    lost = _lost_time(rank, lateness, ranks, begin)
    if begin is None and lost is None:
        # The upper ends of the intervals on the other side.
        is_excluded = min(-lower_bound(-one, family) for one in (delays, excess)) < relevant
        return found | {"verdict": NO_DELAY_SHOWN if is_excluded else UNDECIDED}
    begin = begin or 0
    if lost is not None:
        # The others wait at the next collective, which the next step may have.
        least = median(lost.per_step[begin:]) / 2
        while begin > 0 and lost.per_step[begin - 1] > least:
            begin -= 1
        found |= {"lost_in": lost.cause, "lost_us": median(lost.per_step[begin:]) / 1e3}
    return found | {"verdict": DELAYS, "is_straggler": True, "since_step": lateness.steps[begin]}


def _lost_time(
    rank: int, lateness: Lateness, ranks: Sequence[RankFacts], begin: int | None
) -> LostTime | None:
    """Where the rank loses its time; of a rank whose delays alone do not show it to be a straggler,
    the kernel that does."""
    delays, steps = lateness.of(rank), lateness.steps
    relevant = _RELEVANT * lateness.window_ns
    first = begin or 0
    delay = median(delays[first:])
    if begin is not None:
        delay = min(delay, max(_most_cost(rank, ranks, steps[begin:]), relevant))
    is_latest = bool((delays.mean() >= lateness.delays.mean(axis=1)).all())
    if begin is None and (not is_latest or delay < relevant):
        return None
    found = find_lost_time(rank, ranks, steps, first, delay)
    if found is not None and found.cause not in (IDLE, EVERYWHERE):
        return found
    is_always = len(steps) > 1 and float(lateness.excess(rank).min()) >= relevant
    alone = None
    if begin is not None or is_always:
        alone = find_own_kernel(rank, ranks, steps, first, delays)
    return found if alone is None and begin is not None else alone
