"""By how much each rank delays the others in each step: the evidence for a straggler.

All ranks leave a collective together, so what follows in one step depends on what came before, and
only steps count as observations.

In which kernel a late rank loses its time, compared with the ranks that wait for it.

Which rank of a point delays the others, since when, and in which kernel it loses the time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gemmetry.statistics.intervals import median
from gemmetry.statistics.runs import student_quantile
from gemmetry.sweeps.model import RankFacts
from gemmetry.sweeps.rows import DELAYS, NO_DELAY_SHOWN, UNDECIDED, PointStraggler
from gemmetry.traces.collectives.matching import JobCollectives
from gemmetry.traces.joins import union

CONFIDENCE = 0.95
FEWEST_STEPS = 3
"""Fewer steps in a row do not show that a rank delays the others: whoever happens to be last in
both of two steps would be named too often where delays are not normally distributed."""

_FEWEST_VALUES = 2
"""Of fewer, the spread is not known."""

Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Lateness:
    """Delays by rank and step, in ns."""

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    """Numbers of the steps that every rank has, ascending."""
    delays: Times
    """(ranks, steps): the time in which all others wait for this rank alone, which is between the
    second to last start and its own of the collectives that it enters last. Time in which several
    of them wait counts once."""
    window_ns: float
    """The median step of all ranks."""

    def of(self, rank: int) -> Times:
        """The delays by one rank, in each step."""
        found: Times = self.delays[self.ranks.index(rank)]
        return found

    def excess(self, rank: int) -> Times:
        """By how much the rank delays the others more than any other rank does, in each step."""
        place = self.ranks.index(rank)
        others = np.delete(self.delays, place, axis=0)
        excess: Times = self.delays[place] - others.max(axis=0)
        return excess


def find_lateness(job: JobCollectives, ranks: Sequence[RankFacts]) -> Lateness:
    """The delays of all ranks in the steps that they have in common."""
    of_job = {facts.rank: facts for facts in reversed(ranks) if facts.rank in job.job.by_rank}
    numbers = [{step.number for step in facts.steps} for facts in of_job.values()]
    steps = sorted(set.intersection(*numbers)) if numbers else []
    places = {number: place for place, number in enumerate(steps)}
    listed = sorted(job.job.by_rank)
    row_of = {rank: place for place, rank in enumerate(listed)}
    step_of = {
        (facts.rank, one.collective.row): one.step
        for facts in of_job.values()
        for one in facts.communication
    }
    waits: dict[tuple[int, int], list[tuple[int, int]]] = {}
    offsets = job.offsets_ns
    for one in job.matching.matched:
        starts = sorted(
            (kernel.start_ns + offsets.get(rank, 0), rank, kernel.row)
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


def lower_bound(values: Times, family: int) -> float:
    """The lower end of Student's one-sided interval of the mean, for one of `family` comparisons
    (Bonferroni); -inf for a single value."""
    if len(values) < _FEWEST_VALUES:
        return -math.inf
    share = 1 - (1 - CONFIDENCE) / family
    reach = student_quantile(share, len(values) - 1) * float(np.std(values, ddof=1))
    return float(np.mean(values)) - reach / math.sqrt(len(values))


def upper_bound(values: Times, family: int) -> float:
    """The upper end of the interval on the other side, like :func:`lower_bound`."""
    return -lower_bound(-values, family)


def delays_since(excess: Times, family: int, relevant_ns: float) -> int | None:
    """Index of the step from which on a rank delays the others; None if none is shown.

    The longest run of steps up to the last one whose mean excess is shown to be above 0, and is at
    least `relevant_ns`; it begins with the first step after which every one has more than half of
    the run's median. Steps are taken as independent and about normally distributed.
    """
    starts = len(excess) - FEWEST_STEPS + 1
    for start in range(starts):
        run = excess[start:]
        is_shown = lower_bound(run, family * starts) > 0 and float(np.mean(run)) >= relevant_ns
        if is_shown:
            low = np.flatnonzero(run <= median(run) / 2)
            begin = start + (int(low[-1]) + 1 if len(low) else 0)
            if begin < len(excess):  # else the last step is no delay
                return begin
    return None


def median_excess(own: Times, others: Sequence[Times]) -> Times:
    """`own` less the median of other ranks, in each step."""
    found: Times = own - np.median(np.array(others, np.float64), axis=0)
    return found


IDLE = "idle: the host submits its work late"
EVERYWHERE = "all kernels: its GPU computes more slowly"

EXPLAINED = 0.5
"""A cause is named if it accounts for at least this share of the delay."""


class LostTime(NamedTuple):
    """What a rank spends more time on than the others."""

    cause: str
    """A kernel, :data:`IDLE` or :data:`EVERYWHERE`."""
    per_step: Times
    """By how much in each step, in ns."""
    is_kernel: bool = False


def find_lost_time(
    rank: int,
    ranks: Sequence[RankFacts],
    steps: Sequence[int],
    begin: int,
    delay_ns: float,
) -> LostTime | None:
    """The cause of a rank's delay of `delay_ns` per step in ``steps[begin:]``, with its times in
    all `steps`; None if none is shown.

    It is the kernel whose time exceeds that of the other ranks the most, then time without work,
    then all kernels together.
    """
    by_rank = {facts.rank: facts for facts in reversed(ranks) if facts.rank is not None}
    if len(by_rank) < 2:
        return None
    alone = _own_kernels(by_rank, steps)
    ignored = alone[rank] if _only_names_differ(alone, rank, EXPLAINED * delay_ns) else {}
    kernels = _kernels(rank, by_rank, steps, begin)
    found = [one for one in kernels if one.cause not in ignored]
    own = by_rank.pop(rank)
    others = list(by_rank.values())
    idle = _excess(own, others, steps, "idle_ns")
    compute = _excess(own, others, steps, "compute_ns")
    candidates = [*found, LostTime(IDLE, idle), LostTime(EVERYWHERE, compute)]
    for one in candidates:
        if float(np.mean(one.per_step[begin:])) >= EXPLAINED * delay_ns:
            return one
    return None


def find_own_kernel(
    rank: int, ranks: Sequence[RankFacts], steps: Sequence[int], begin: int, delays: Times
) -> LostTime | None:
    """The kernel that no other rank runs and that accounts for half of the rank's delay in each of
    ``steps[begin:]``, with its times in all `steps`; None without one.

    It needs no interval: that one rank alone runs a kernel is no chance.
    """
    by_rank = {facts.rank: facts for facts in reversed(ranks) if facts.rank is not None}
    least = EXPLAINED * delays
    alone = _own_kernels(by_rank, steps)
    if _only_names_differ(alone, rank, float(least[begin:].min())):
        return None
    found = [
        LostTime(name, times, True)
        for name, times in alone[rank].items()
        if bool((times[begin:] >= least[begin:]).all())
    ]
    return max(found, key=lambda one: float(np.mean(one.per_step)), default=None)


def _own_kernels(
    by_rank: Mapping[int, RankFacts], steps: Sequence[int]
) -> dict[int, dict[str, Times]]:
    """Of each rank, the kernels that no other rank runs, and their times in each step."""
    tables = {
        rank: {name: times for name, times in _by_kernel(facts, steps).items() if times.any()}
        for rank, facts in by_rank.items()
    }
    users = Counter(name for table in tables.values() for name in table)
    return {
        rank: {name: times for name, times in table.items() if users[name] == 1}
        for rank, table in tables.items()
    }


def _only_names_differ(
    alone: Mapping[int, Mapping[str, Times]], rank: int, least_ns: float
) -> bool:
    """Whether another rank also has a kernel to itself that takes at least so long in the mean
    step: then names contain the rank, and show nothing about what it does."""
    return any(
        float(np.mean(times)) >= least_ns
        for other, kernels in alone.items()
        if other != rank
        for times in kernels.values()
    )


def _kernels(
    rank: int, by_rank: Mapping[int, RankFacts], steps: Sequence[int], begin: int
) -> list[LostTime]:
    """The kernels that are shown to take the rank more time, the largest difference first."""
    own = by_rank[rank]
    tables = [_by_kernel(facts, steps) for one, facts in by_rank.items() if one != rank]
    nothing = np.zeros(len(steps))
    family = max(1, len(own.kernel_times.names)) * len(by_rank)
    found = []
    for name, times in _by_kernel(own, steps).items():
        excess = median_excess(times, [table.get(name, nothing) for table in tables])
        if lower_bound(excess[begin:], family) > 0:
            found.append(LostTime(name, excess, True))
    return sorted(found, key=lambda one: -float(np.mean(one.per_step[begin:])))


def _by_kernel(facts: RankFacts, steps: Sequence[int]) -> dict[str, Times]:
    places = {step.number: place for place, step in enumerate(facts.steps)}
    rows = [places[number] for number in steps]
    table = facts.kernel_times.per_step[rows].astype(np.float64)
    return dict(zip(facts.kernel_times.names, table.T, strict=True))


def _excess(own: RankFacts, others: Sequence[RankFacts], steps: Sequence[int], field: str) -> Times:
    def values(facts: RankFacts) -> Times:
        by_number = {step.number: getattr(step, field) for step in facts.steps}
        return np.array([by_number[number] for number in steps], np.float64)

    return median_excess(values(own), [values(facts) for facts in others])


RELEVANT = 0.01
"""Delays below this share of a step are not worth a name."""


def stragglers(ranks: Sequence[RankFacts], job: JobCollectives) -> list[PointStraggler]:
    """Every rank of a point with a trace, by number; [] where no collective is matched.

    A rank counts as a straggler if in each step, from some step on, the others wait for it alone
    longer than for any other rank, by a mean that is shown to be above 0, and by 1 % of a step at
    least; or if it delays the others most, by 1 % of a step at least, and a kernel that is shown to
    take it more time than them accounts for half of that; or if it does so in every step, and a
    kernel that no other rank runs accounts for half of it each time. On 4x H200 ranks take turns:
    in 8 recordings of FSDP with 3 steps each, the rank that delayed the others most, by up to 9 %
    of a step, changed from step to step, and no rank counts.

    `job` is that of :func:`~gemmetry.sweeps.points.matched_job` of the same
    ranks.
    """
    if not job.matching.matched:
        return []
    lateness = find_lateness(job, ranks)
    is_comparable = bool(lateness.steps) and len(lateness.ranks) > 1
    result = []
    for one in job.stragglers(corrected=True):
        found = _shown(one.rank, lateness, ranks) if is_comparable else None
        result.append(
            PointStraggler(
                rank=one.rank,
                collectives=one.collectives,
                last_share=one.last_share,
                waited_us=one.waited_ns / 1e3,
                is_straggler=found is not None and found.verdict == DELAYS,
                **({} if found is None else found._asdict()),
            )
        )
    return result


class _Shown(NamedTuple):
    """The fields of :class:`PointStraggler` that follow from the steps."""

    verdict: str
    delayed_us: float
    lost_in: str | None = None
    lost_us: float | None = None
    since_step: int | None = None


def _shown(rank: int, lateness: Lateness, ranks: Sequence[RankFacts]) -> _Shown:
    delays, excess = lateness.of(rank), lateness.excess(rank)
    delayed_us = median(delays) / 1e3
    relevant, family = RELEVANT * lateness.window_ns, len(lateness.ranks)
    begin = delays_since(excess, family, relevant)
    lost = _lost_time(rank, lateness, ranks, begin)
    if begin is None and lost is None:
        is_excluded = min(upper_bound(one, family) for one in (delays, excess)) < relevant
        return _Shown(NO_DELAY_SHOWN if is_excluded else UNDECIDED, delayed_us)
    begin = begin or 0
    if lost is None:
        return _Shown(DELAYS, delayed_us, since_step=lateness.steps[begin])
    # The others wait at the next collective, which the next step may have.
    least = median(lost.per_step[begin:]) / 2
    while begin > 0 and lost.per_step[begin - 1] > least:
        begin -= 1
    lost_us = median(lost.per_step[begin:]) / 1e3
    return _Shown(DELAYS, delayed_us, lost.cause, lost_us, lateness.steps[begin])


def _lost_time(
    rank: int, lateness: Lateness, ranks: Sequence[RankFacts], begin: int | None
) -> LostTime | None:
    """Where the rank loses its time; of a rank whose delays alone do not show it to be a straggler,
    the kernel that does."""
    delays, steps = lateness.of(rank), lateness.steps
    relevant = RELEVANT * lateness.window_ns
    first = begin or 0
    delay = float(delays[first:].mean())
    is_latest = bool((delays.mean() >= lateness.delays.mean(axis=1)).all())
    if begin is None and (not is_latest or delay < relevant):
        return None
    found = find_lost_time(rank, ranks, steps, first, delay)
    if found is not None and found.is_kernel:
        return found
    is_always = len(steps) > 1 and float(lateness.excess(rank).min()) >= relevant
    alone = None
    if begin is not None or is_always:
        alone = find_own_kernel(rank, ranks, steps, first, delays)
    return found if alone is None and begin is not None else alone
