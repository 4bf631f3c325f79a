"""Decides which dispatches are open at the same time: those of one operation, or of several small
ones, as far as the device's memory allows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from gemmetry.domain.target import Target
from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.jobs import Job
from gemmetry.hardware.host import free_memory_bytes
from gemmetry.measurement.buffers import CACHE_FACTOR, FEWEST_SETS, MAX_SETS

MAX_GROUP = 64
"""The most dispatches that are open at once. More would lengthen a round, and with it the drift
between the first and the last candidate, beyond the seconds over which a machine is steady."""

SMALL_OPERATION_FLOPS = 1e8
"""Operations up to this size share a group: a launch takes at most milliseconds, and starting a
group costs as much."""

ASSUMED_CACHE_BYTES = 256 << 20
"""The last-level cache assumed while grouping, which is that of AMD's MI300X (Infinity Cache), the
largest of current devices. Sets of inputs are sized by the actual cache."""

UNKNOWN_GPU_BUDGET_BYTES = 4 << 30
"""The budget of the first group on a GPU or on another machine, before its free memory is known."""


class Budget:
    """The memory that open executables of one device may use together, each in `processes`
    processes."""

    def __init__(
        self,
        target: Target,
        job: Job,
        processes: int = 1,
        *,
        is_here: bool = True,
        devices: int = 1,
    ) -> None:
        """`is_here`: whether the device is one of this machine. `devices`: how many share the
        work."""
        self.most_shared = max(1, MAX_GROUP // devices)
        """The most dispatches of different operations in a group. Small operations would otherwise
        all be the work of one device."""
        self._job = job
        self._settings = job.settings
        self._processes = processes
        self._free_bytes: int | None = None
        if is_here and not target.is_gpu:
            self._free_bytes = free_memory_bytes()

    def observe(self, free_bytes: int) -> None:
        """Note the device's free memory; the largest value seen is that of the idle device."""
        if free_bytes > 0:
            self._free_bytes = max(self._free_bytes or 0, free_bytes)

    @property
    def limit_bytes(self) -> int:
        """``settings.memory_budget_bytes``, or half of the free memory."""
        if self._settings.memory_budget_bytes > 0:
            return self._settings.memory_budget_bytes
        if self._free_bytes is None:
            return UNKNOWN_GPU_BUDGET_BYTES * self._processes
        return self._free_bytes // 2

    def needed_bytes(self, candidate: Candidate) -> int:
        """An estimate for one open dispatch: its rotating sets of inputs, see
        measurement/buffers.py."""
        one_set = max(1, candidate.operation.bytes)
        sets = 1
        if self._settings.cold_cache and self._job.samples:
            wanted = math.ceil(CACHE_FACTOR * ASSUMED_CACHE_BYTES / one_set)
            sets = min(max(FEWEST_SETS, wanted), MAX_SETS)
        return one_set * sets * self._processes


def groups(candidates: Iterable[Candidate], budget: Budget) -> Iterator[list[Candidate]]:
    """Split candidates (in plan order) into groups. An operation is split only where it does not
    fit in a group of its own, so that its candidates are compared in the same rounds."""
    group: list[Candidate] = []
    used = 0
    for _, one_operation in groupby(candidates, key=lambda candidate: candidate.operation_name):
        members = list(one_operation)
        whole = sum(map(budget.needed_bytes, members))
        if group and (
            len(group) + len(members) > budget.most_shared or used + whole > budget.limit_bytes
        ):
            yield group
            group, used = [], 0
        for candidate in members:
            needed = budget.needed_bytes(candidate)
            fits = len(group) < MAX_GROUP and used + needed <= budget.limit_bytes
            if group and not (fits and _share(group[-1], candidate)):
                yield group
                group, used = [], 0
            group.append(candidate)
            used += needed
    if group:
        yield group


def longest_first(candidates: Iterable[Candidate], most_shared: int) -> list[Candidate]:
    """The candidates in the order of groups that several devices finish at about the same time
    (Graham, *SIAM J. Appl. Math.* 17, 1969): groups that take long first, which are those with more
    dispatches, as each is sampled to about the same width, then those of larger operations. What
    runs alone stays last. `most_shared`: see :class:`Budget`."""
    units: list[list[Candidate]] = []
    for _, one_operation in groupby(candidates, lambda one: (one.runs_alone, one.operation_name)):
        members = list(one_operation)
        shares = units and _share(units[-1][-1], members[0])
        if shares and len(units[-1]) + len(members) <= most_shared:
            units[-1] += members
        else:
            units.append(members)
    units.sort(key=lambda of: (of[0].runs_alone, -len(of), -max(c.operation.flops for c in of)))
    return [candidate for members in units for candidate in members]


def _share(last: Candidate, candidate: Candidate) -> bool:
    if candidate.runs_alone or last.runs_alone:
        return False
    same = candidate.operation_name == last.operation_name
    small = max(candidate.operation.flops, last.operation.flops) <= SMALL_OPERATION_FLOPS
    return same or small


def by_lane(candidates: Sequence[Candidate]) -> Iterator[tuple[int, list[Candidate]]]:
    """`candidates` by the number of their lane, in the given order."""
    ordered = sorted(candidates, key=lambda candidate: candidate.lane.id)
    for lane, members in groupby(ordered, key=lambda candidate: candidate.lane.id):
        yield lane, list(members)
