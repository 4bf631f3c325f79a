"""Several recordings of one rank, which a profiler's schedule with ``repeat`` writes, as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from gemmetry.analysis.sweeps.model import (
    CommunicationKernel,
    GemmInstances,
    GemmKind,
    KernelTimes,
    RankFacts,
    StepFacts,
    TraceTimes,
)
from gemmetry.formats.events import Int64


def merged(recordings: Sequence[RankFacts]) -> RankFacts:
    """The facts of all `recordings` of one rank (at least one), in the order of their times.

    A recording that overlaps an earlier one in time, such as a copy of it, is left out and named in
    the problems. Steps whose numbers occur again are numbered on. Times of whole traces add up.
    """
    ordered = sorted(recordings, key=_extent)
    kept, problems = [ordered[0]], list(ordered[0].problems)
    for one in ordered[1:]:
        if _extent(one)[0] < _extent(kept[-1])[1]:
            problems.append(f"{one.file} is left out: it overlaps {kept[-1].file} in time")
        else:
            kept.append(one)
            problems += one.problems
    if len(kept) == 1:
        return msgspec.structs.replace(kept[0], problems=tuple(problems))
    kept = _numbered_on(kept)
    kinds = {kind: number for number, kind in enumerate(
        dict.fromkeys(kind for one in kept for kind in one.gemm_kinds)
    )}  # fmt: skip
    return msgspec.structs.replace(
        kept[0],
        events=sum(one.events for one in kept),
        span=(kept[0].span[0], kept[-1].span[1]),
        partial=any(one.partial for one in kept),
        problems=tuple(problems),
        times=TraceTimes(**{
            name: sum(getattr(one.times, name) for one in kept)
            for name in TraceTimes.__struct_fields__
        }),
        steps=tuple(step for one in kept for step in one.steps),
        gemm_kinds=tuple(kinds),
        gemms=_gemms(kept, kinds),
        communication=tuple(_communication(kept)),
        kernel_times=_kernel_times(kept),
    )  # fmt: skip


def _extent(facts: RankFacts) -> tuple[int, int]:
    """First and last moment of a recording."""
    gemms = facts.gemms
    starts = [step.start_ns for step in facts.steps]
    ends = [step.end_ns for step in facts.steps]
    if facts.span != (0, 0):
        starts.append(facts.span[0])
        ends.append(facts.span[1])
    if len(gemms):
        starts.append(int(gemms.start_ns[0]))
        ends.append(int((gemms.start_ns + gemms.duration_ns).max()))
    return min(starts, default=0), max(ends, default=0)


def _numbered_on(recordings: Sequence[RankFacts]) -> list[RankFacts]:
    """Recordings without a number of a step that an earlier one has."""
    result: list[RankFacts] = []
    used: set[int] = set()
    for one in recordings:
        numbers = {step.number for step in one.steps}
        shift = max(used) + 1 - min(numbers) if numbers & used else 0
        result.append(_shifted(one, shift) if shift else one)
        used |= {number + shift for number in numbers}
    return result


def _shifted(facts: RankFacts, shift: int) -> RankFacts:
    def number(step: int) -> int:
        return step + shift if step >= 0 else step

    steps: list[StepFacts] = [
        msgspec.structs.replace(step, number=number(step.number)) for step in facts.steps
    ]
    of_gemms = facts.gemms.step
    moved = np.where(of_gemms >= 0, of_gemms + shift, of_gemms)
    return msgspec.structs.replace(
        facts,
        steps=tuple(steps),
        gemms=msgspec.structs.replace(facts.gemms, steps=moved.astype(np.int64).tobytes()),
        communication=tuple(
            msgspec.structs.replace(one, step=number(one.step)) for one in facts.communication
        ),
    )


def _gemms(recordings: Sequence[RankFacts], kinds: dict[GemmKind, int]) -> GemmInstances:
    columns: list[list[Int64]] = [[] for _ in GemmInstances.__struct_fields__]
    instances = kernels = 0
    for one in recordings:
        gemms = one.gemms
        number = np.array([kinds[kind] for kind in one.gemm_kinds] or [0], np.int64)
        pairs = gemms.overlapping + np.array([instances, kernels, 0])
        parts = (number[gemms.kind], gemms.start_ns, gemms.duration_ns, gemms.overlap_ns,
                 gemms.step, pairs.reshape(-1))  # fmt: skip
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
        instances += len(gemms)
        kernels += len(one.communication)
    return GemmInstances(*(np.concatenate(column).tobytes() for column in columns))


def _communication(recordings: Sequence[RankFacts]) -> Iterator[CommunicationKernel]:
    """The kernels of all recordings; their rows count on, as rows identify them."""
    rows = 0
    for one in recordings:
        for kernel in one.communication:
            found = kernel.collective
            yield msgspec.structs.replace(
                kernel, collective=dataclasses.replace(found, row=found.row + rows)
            )
        rows += 1 + max((kernel.collective.row for kernel in one.communication), default=-1)


def _kernel_times(recordings: Sequence[RankFacts]) -> KernelTimes:
    tables = [one.kernel_times for one in recordings]
    names = tuple(dict.fromkeys(name for table in tables for name in table.names))
    found = np.zeros((sum(len(one.steps) for one in recordings), len(names)), np.int64)
    begin = 0
    for one, table in zip(recordings, tables, strict=True):
        end = begin + len(one.steps)
        if columns := [names.index(name) for name in table.names]:
            found[begin:end, columns] = table.per_step
        begin = end
    return KernelTimes(names, found.tobytes())
