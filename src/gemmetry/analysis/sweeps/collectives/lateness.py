"""By how much each rank delays the others in each step: the evidence for a straggler.

All ranks leave a collective together, so what follows in one step depends on what came before, and
only steps count as observations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmetry.analysis.sweeps.model import RankFacts
from gemmetry.statistics.quantiles import median
from gemmetry.statistics.runs import student_quantile
from gemmetry.traces.collectives.jobs import JobCollectives
from gemmetry.traces.intervals import union

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
