"""Jobs with their collectives matched: which rank waited for which, and the bandwidths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from gemmetry.domain.units import counted, format_numbers
from gemmetry.traces.collectives.clock_offset import ClockOffset, clock_offsets
from gemmetry.traces.collectives.matched import Matched
from gemmetry.traces.collectives.matching import Matching, match
from gemmetry.traces.jobs import RankTrace, TraceJob, group_jobs


@dataclass(frozen=True, slots=True)
class Straggler:
    """How often one rank was last, and how long it waited itself."""

    rank: int
    collectives: int
    """Number of matched collectives that the rank took part in."""
    last_count: int
    last_share: float
    """Of those, 0 to 1."""
    waited_ns: int
    """Sum of the latest start minus the rank's own start, in ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """Collectives with the same operation, type, size and group size."""

    op: str | None
    dtype: str | None
    elements: int | None
    group_size: int | None
    ones: tuple[Matched, ...]


@dataclass(frozen=True, repr=False)
class JobCollectives:
    """The collectives of one job."""

    job: TraceJob
    matching: Matching
    clocks: tuple[ClockOffset, ...]

    def __repr__(self) -> str:
        ranks, matched = len(self.job.ranks), len(self.matching.matched)
        return f"<JobCollectives {self.job.name}: {matched} collectives matched, ranks: {ranks}>"

    @cached_property
    def offsets_ns(self) -> dict[int, int]:
        """Clock offsets used by corrected values, by rank; empty if no clock differs."""
        applied = {one.rank: one.applied_ns for one in self.clocks}
        return applied if any(applied.values()) else {}

    @property
    def span_ns(self) -> int | None:
        """Time from the first start to the last end of work on any rank in ns, with clocks
        corrected; 0 without work. None where ranks do not overlap in time, because their clocks or
        the times of their recordings differ."""
        offsets = self.offsets_ns
        spans = sorted(
            (one.span[0] + shift, one.span[1] + shift)
            for one in self.job.ranks
            if one.span != (0, 0)
            for shift in (offsets.get(one.rank or 0, 0),)
        )
        if not spans:
            return 0
        reached = spans[0][1]
        for start, end in spans:
            if start > reached:
                return None
            reached = max(reached, end)
        return reached - spans[0][0]

    def stragglers(self, *, corrected: bool = False) -> list[Straggler]:
        """Every rank of the job, by number; `corrected` by the clock offsets."""
        offsets = self.offsets_ns if corrected else None
        ranks = self.job.by_rank
        last, waited, took_part = (dict.fromkeys(ranks, 0) for _ in range(3))
        for one in self.matching.matched:
            last[one.last_rank(offsets)] += 1
            for rank, wait in one.waits_ns(offsets).items():
                waited[rank] += wait
                took_part[rank] += 1
        return [
            Straggler(
                rank, took_part[rank], last[rank],
                last[rank] / took_part[rank] if took_part[rank] else 0.0, waited[rank],
            )
            for rank in sorted(ranks)
        ]  # fmt: skip

    @cached_property
    def listed(self) -> tuple[Matched, ...]:
        """The matched collectives; where there are none, as with a single rank, each kernel by
        itself (:attr:`Matched.is_lone`)."""
        if self.matching.matched:
            return self.matching.matched
        alone = [
            Matched(kernel.group, ((rank, kernel),), ())
            for rank, trace in self.job.by_rank.items()
            for kernel in trace.collectives
        ]
        return tuple(sorted(alone, key=lambda one: (one.start_ns, one.members[0][0])))

    @cached_property
    def kinds(self) -> list[JobKind]:
        """Collectives grouped by what they do, those with the most time first."""
        found: dict[tuple[object, ...], list[Matched]] = {}
        for one in self.listed:
            key = (one.op, one.dtype, one.elements, one.group_size)
            found.setdefault(key, []).append(one)
        kinds = [
            JobKind(op=ones[0].op, dtype=ones[0].dtype, elements=ones[0].elements,
                 group_size=ones[0].group_size, ones=tuple(ones))
            for ones in found.values()
        ]  # fmt: skip
        return sorted(kinds, key=lambda kind: -sum(one.latency_ns for one in kind.ones))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes that a reader of the figures needs: missing ranks, mismatches, clocks."""
        return (*self.job.notes, *_missing(self.job), *_mismatched(self.matching),
                *_without_group(self), *_clocks(self.clocks), *_apart(self),
                *_above_link(self))  # fmt: skip


def analyse_jobs(traces: Iterable[RankTrace]) -> list[JobCollectives]:
    """Groups traces into jobs and matches the collectives of each.

    Raises:
        RequestError: a rank occurs twice in a job.
    """
    return [analyse_job(job) for job in group_jobs(traces)]


def analyse_job(job: TraceJob) -> JobCollectives:
    """The collectives of `job`, matched, with the offsets of its clocks."""
    matching = match(job)
    return JobCollectives(job, matching, tuple(clock_offsets(job, matching.matched)))


def _missing(job: TraceJob) -> list[str]:
    if not job.missing:
        return []
    size = job.world_size or len(job.ranks) + len(job.missing)
    which = format_numbers(job.missing)
    ranks, have = ("rank", "has") if len(job.missing) == 1 else ("ranks", "have")
    return [f"{ranks} {which} of {size} {have} no file: times are those of the other ranks"]


def _mismatched(matching: Matching) -> list[str]:
    shown = [
        f"group {one.group!r}, after {one.after} matched: {one.what}"
        if one.group
        else f"after {one.after} matched: {one.what}"
        for one in matching.mismatches[:_MOST_SHOWN]
    ]
    more = len(matching.mismatches) - len(shown)
    return [*shown, f"and {counted(more, 'more mismatch', 'more mismatches')}"] if more else shown


def _without_group(found: JobCollectives) -> list[str]:
    count = sum(one.is_group_inferred for one in found.matching.matched)
    if not count:
        return []
    which = counted(count, "matched collective")
    return [f"the traces name no group for {which}, assumed to be of all "
            f"{len(found.job.ranks)} ranks"]  # fmt: skip


def _clocks(clocks: Sequence[ClockOffset]) -> list[str]:
    applied = [one for one in clocks if one.applied_ns]
    if not applied:
        return []
    texts = ", ".join(f"rank {one.rank} by {one.applied_ns / 1000:+.1f} µs" for one in applied[:8])
    more = f" and {len(applied) - 8} more" if len(applied) > 8 else ""
    return [f"clocks differ from rank {clocks[0].rank}'s: {texts}{more}; corrected values are "
            "next to the recorded ones"]  # fmt: skip


def _apart(found: JobCollectives) -> list[str]:
    """Notes on collectives whose kernels did not run at the same time on all ranks."""
    offsets = found.offsets_ns
    apart = 0
    for one in found.matching.matched:
        start_skew, _ = one.skews_ns(offsets)
        apart += start_skew > 0 and _never_together(one, offsets)
    if not apart:
        return []
    return [f"{apart} of {len(found.matching.matched)} matched collectives did not run at the same "
            "time on all ranks: clocks differ, or a recording lacks some of them"]  # fmt: skip


def _above_link(found: JobCollectives) -> list[str]:
    """A note on bus bandwidths that no link has."""
    above = [one for one in found.matching.matched if one.is_above_link]
    if not above:
        return []
    link = min(k.link_gbps for one in above for _, k in one.members if k.link_gbps is not None)
    which = counted(len(above), "collective")
    return [f"the bus bandwidth of {which} (marked with !) is above the {link:,.0f} GB/s that a "
            "GPU's links transfer in one direction: the switch reduced or multicast (NVLS, SHARP), "
            "so the links transferred less; or a size or time is wrong"]  # fmt: skip


def _never_together(one: Matched, offsets: dict[int, int]) -> bool:
    starts = [kernel.start_ns + offsets.get(rank, 0) for rank, kernel in one.members]
    ends = [kernel.end_ns + offsets.get(rank, 0) for rank, kernel in one.members]
    return max(starts) > min(ends)


_MOST_SHOWN = 10
