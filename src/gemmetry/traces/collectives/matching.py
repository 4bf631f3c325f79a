"""Matches the collectives of several ranks by group and order.

Jobs with their collectives matched: which rank waited for which, and the bandwidths.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from gemmetry.domain.rows import Row, derived, fact
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import format_numbers, noun_for, plural
from gemmetry.formats.events import MISSING
from gemmetry.traces.collectives.alignment import (
    Alignment,
    ClockOffset,
    Entries,
    Matched,
    align,
    clock_offsets,
)
from gemmetry.traces.collectives.summary import POINT_TO_POINT, SYNCHRONISING, Collective, Group
from gemmetry.traces.jobs import RankTrace, TraceJob, group_jobs

_UNEQUAL = ("all_to_all", *POINT_TO_POINT)
"""Operations in which ranks may have different numbers of elements."""


_MOST_GROUPS = 64
"""Maximum number of groups of one name that are compared with each other: a job has one, a damaged
trace thousands."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A point at which ranks of a group did different things."""

    group: str
    after: int
    """Number of the group's collectives matched before it."""
    what: str


@dataclass(frozen=True, slots=True)
class Matching:
    """The collectives of a job, matched."""

    matched: tuple[Matched, ...]
    """Matched collectives, by earliest start."""
    unmatched: dict[int, int]
    """Collectives of each rank that are not in `matched`. Collectives of single-rank groups, which
    have no counterpart, are in neither."""
    mismatches: tuple[Mismatch, ...]


@dataclass(slots=True)
class _Slot:
    """One collective while ranks are being aligned: its kernel by rank."""

    members: dict[int, Collective]
    end_ns: int
    properties: list[int]


def match(job: TraceJob) -> Matching:
    """Matches a job's collectives.

    Every group is matched by the order of starts on each rank; operation, element type and size
    must agree where they are recorded (sizes of all-to-alls may differ), and so must the sequence
    number. A collective counts as matched if every rank of its group that has a file has it.
    """
    streams = _Streams(job)
    groups: dict[Hashable, dict[int, list[Collective]]] = {}
    alone = Counter[int]()
    for rank, trace in job.by_rank.items():
        for one in trace.collectives:
            if one.group is not None and one.group.size == 1:
                alone[rank] += 1
            else:
                groups.setdefault(streams.key(rank, one), {}).setdefault(rank, []).append(one)
    matched: list[Matched] = []
    mismatches = list(streams.mismatches)
    for key, sequences in groups.items():
        expected = streams.ranks(key, sequences)
        present = [rank for rank in sorted(expected) if rank in job.by_rank]
        if len(present) < 2:
            continue
        slots = _merged({rank: ones for rank, ones in sequences.items() if rank in expected})
        mismatches += _differences(slots, present, streams.label(key))
        missing = tuple(sorted(expected - set(job.by_rank)))
        for slot in slots:
            if set(present) <= set(slot.members):
                members = tuple(sorted(slot.members.items()))
                group, is_complete = _group(job, members, expected, missing)
                matched.append(Matched(
                    group=group, members=members, missing=missing, is_complete=is_complete
                ))  # fmt: skip
    matched.sort(key=lambda one: (one.start_ns, one.members[0][0]))
    unmatched = {rank: len(trace.collectives) - alone[rank] for rank, trace in job.by_rank.items()}
    for whole in matched:
        for rank, _ in whole.members:
            unmatched[rank] -= 1
    return Matching(tuple(matched), unmatched, tuple(mismatches))


def _group(
    job: TraceJob,
    members: Sequence[tuple[int, Collective]],
    expected: Set[int],
    missing: Sequence[int],
) -> tuple[Group | None, bool]:
    """The group of a matched collective, and whether every rank of it has a file.

    Where no trace records a group's ranks or size, a collective in which all ranks of a complete
    job take part counts as one of all ranks.
    """
    groups = (one.group for _, one in members if one.group is not None)
    # The most informative one.
    group = max(groups, key=lambda group: (len(group.ranks), group.size or 0), default=None)
    if members[0][1].op in POINT_TO_POINT:
        return group, len(expected) == 2 and not missing
    if group is None or not (group.ranks or group.size):
        if job.world_size == len(members) and not job.missing:
            return replace(group or Group(), size=job.world_size), True
        return group, False
    return group, not missing if group.ranks else group.size == len(members)


class _Streams:
    """Determines which collectives of different ranks belong to one sequence."""

    def __init__(self, job: TraceJob) -> None:
        self._by_name: dict[str | None, set[tuple[int, ...]]] = {}
        streams: dict[int, set[int]] = {}
        outside: dict[tuple[str | None, int], tuple[int, ...]] = {}
        self.mismatches: list[Mismatch] = []
        for rank, trace in job.by_rank.items():
            for one in trace.collectives:
                if one.group is None:
                    streams.setdefault(rank, set()).add(one.stream)
                elif one.group.ranks:
                    self._by_name.setdefault(one.group.name, set()).add(one.group.ranks)
                    if rank not in one.group.ranks:
                        outside[one.group.name, rank] = one.group.ranks
        # Streams have the same numbers on all ranks of most jobs; where they do not, all
        # collectives without a group are one sequence.
        self._streams_agree = len({frozenset(found) for found in streams.values()}) == 1
        by_ranks = [(name, ranks) for name, found in self._by_name.items() for ranks in found]
        self._only = by_ranks[0] if len(by_ranks) == 1 else None
        # Groups of one name that share only some of their ranks cannot both be correct.
        for name, found in self._by_name.items():
            for first, second in itertools.combinations(sorted(found)[:_MOST_GROUPS], 2):
                if set(first) & set(second):
                    what = f"its ranks are {_ranks(first)} for some and {_ranks(second)} for others"
                    self.mismatches.append(Mismatch(name or "", 0, what))
        for (name, rank), ranks in outside.items():
            what = f"rank {rank} takes part, but its ranks are {_ranks(ranks)}"
            self.mismatches.append(Mismatch(name or "", 0, what))

    def key(self, rank: int, one: Collective) -> tuple[Hashable, ...]:
        """The sequence that `one` belongs to."""
        if one.group is not None:
            name, ranks = one.group.name, one.group.ranks
        elif self._only is not None:
            # A rank whose trace records no group, in a job that has only one.
            name, ranks = self._only
        else:
            return ("stream", one.stream if self._streams_agree else None)
        known = self._by_name.get(name, set())
        if not ranks and len(known) == 1:
            (ranks,) = known
        if one.op in POINT_TO_POINT:
            peer = one.peer
            if peer is None and len(ranks) == 2 and rank in ranks:
                peer = ranks[1 - ranks.index(rank)]
            return ("pair", name, ranks, *((rank, peer) if one.op == "send" else (peer, rank)))
        size = one.group.size if one.group is not None and not ranks else None
        return ("group", name, ranks, size)

    def ranks(self, key: Hashable, sequences: Mapping[int, Sequence[Collective]]) -> set[int]:
        """All ranks that should have the sequence."""
        assert isinstance(key, tuple)
        if key[0] == "pair":
            return {rank for rank in key[3:5] if rank is not None}
        return set(key[2] if key[0] == "group" and key[2] else sequences)

    def label(self, key: Hashable) -> str:
        """The sequence's name in messages."""
        assert isinstance(key, tuple)
        if key[0] == "stream":
            return "" if key[1] is None else f"stream {key[1]}"
        name = key[1] or ""
        return f"{name} {key[3]}->{key[4]}" if key[0] == "pair" else str(name)


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"[{shown}, ... {ranks[-1]}]" if len(ranks) > 8 else f"[{shown}]"


def _merged(sequences: Mapping[int, Sequence[Collective]]) -> list[_Slot]:
    """Combine the sequences of all ranks into one, the longest first."""
    codes: dict[Hashable, int] = {}
    slots: list[_Slot] = []
    for rank in sorted(sequences, key=lambda rank: (-len(sequences[rank]), rank)):
        ones = sequences[rank]
        properties = [_property_codes(one, codes) for one in ones]
        if not slots:
            pairs = zip(ones, properties, strict=True)
            slots = [_Slot({rank: one}, one.end_ns, list(known)) for one, known in pairs]
            continue
        firsts = [next(iter(slot.members.values())) for slot in slots]
        left, right = (
            Entries(
                np.array([one.end_ns for one in ends], np.int64), np.array(known, np.int64),
                np.array([kernel.op in SYNCHRONISING for kernel in kernels]),
            )
            for ends, known, kernels in (
                (slots, [slot.properties for slot in slots], firsts), (ones, properties, ones),
            )
        )  # fmt: skip
        slots = _joined(slots, rank, ones, properties, align(left, right))
    return slots


def _joined(
    slots: Sequence[_Slot],
    rank: int,
    ones: Sequence[Collective],
    properties: Sequence[Sequence[int]],
    found: Alignment,
) -> list[_Slot]:
    result: list[_Slot] = []
    i = j = 0
    offset = round(found.offset_ns)
    left, right = [*found.left.tolist(), len(slots)], [*found.right.tolist(), len(ones)]
    for to_left, to_right in zip(left, right, strict=True):
        result += slots[i:to_left]
        result += [
            _Slot({rank: one}, one.end_ns - offset, list(known))
            for one, known in zip(ones[j:to_right], properties[j:to_right], strict=True)
        ]
        if to_left < len(slots):
            slot = slots[to_left]
            slot.members[rank] = ones[to_right]
            pairs = zip(slot.properties, properties[to_right], strict=True)
            slot.properties = [new if old == MISSING else old for old, new in pairs]
            result.append(slot)
        i, j = to_left + 1, to_right + 1
    return result


def _property_codes(one: Collective, codes: dict[Hashable, int]) -> list[int]:
    """Numbers for the properties that must agree between ranks."""
    op = "send_recv" if one.op in POINT_TO_POINT else one.op
    elements = None if op is None or one.op in _UNEQUAL else one.elements
    return [
        MISSING if value is None else codes.setdefault((place, value), len(codes))
        for place, value in enumerate((op, one.dtype, elements, one.sequence))
    ]


def _differences(slots: Sequence[_Slot], present: Sequence[int], label: str) -> list[Mismatch]:
    """The unmatched entries between matched collectives. Before the first and after the last one,
    only contradictory entries count: recordings need not begin and end together."""
    found: list[Mismatch] = []
    run: list[_Slot] = []
    done = 0
    for slot in [*slots, None]:
        if slot is not None and not set(present) <= set(slot.members):
            run.append(slot)
            continue
        if run and (what := _difference(run, present, at_edge=done == 0 or slot is None)):
            found.append(Mismatch(label, done, what))
        run, done = [], done + 1
    return found


def _difference(run: Sequence[_Slot], present: Sequence[int], *, at_edge: bool) -> str:
    by_rank = grouped((pair for slot in run for pair in slot.members.items()), itemgetter(0))
    sides = sorted((set(slot.members) for slot in run), key=len)
    # Each rank has an entry that the other lacks.
    if any(not less <= more for less, more in itertools.pairwise(sides)):
        return "; ".join(
            f"rank {rank}: {describe(ones[0][1])}"
            + (f" and {len(ones) - 1} more" if ones[1:] else "")
            for rank, ones in sorted(by_rank.items())
        )
    if at_edge:
        return ""
    lacking = [rank for rank in present if rank not in by_rank]
    first = describe(next(iter(run[0].members.values())))
    which = f"{first} is" if len(run) == 1 else f"{len(run)} collectives, the first {first}, are"
    where = f"rank {', '.join(map(str, lacking))}" if lacking else "some ranks"
    return f"{which} missing on {where}"


def describe(one: Collective) -> str:
    """``all_reduce of 1024 Float``, as far as it is known."""
    size = "" if one.elements is None else f" of {one.elements}"
    text = f"{one.op or 'a collective'}{size} {one.dtype or ''}".rstrip()
    return f"{text} (number {one.sequence})" if one.sequence is not None else text


class Straggler(Row):
    """How often one rank was last, and how long it waited itself."""

    rank: int = fact("rank of the trace")
    collectives: int
    """Number of matched collectives that the rank took part in."""
    last_count: int = fact("collectives that the rank began last")
    last_share: float = fact("share of the matched collectives")
    waited_ns: int = fact("time that the rank waited for others", "µs")
    """Sum of the latest start minus the rank's own start."""


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _us(text: str) -> Any:
    """A fact in µs, whose function returns ns."""

    def declared(of_ns: Callable[[JobKind], float | None]) -> Any:
        return derived(text, "µs", type=float | None)(
            lambda kind: None if (ns := of_ns(kind)) is None else ns / 1000
        )

    return declared


def _bandwidth(name: str) -> Callable[[JobKind], float | None]:
    return lambda kind: _median(getattr(one, name) for one in kind.ones)


class JobKind(Row):
    """Collectives with the same operation, type, size and group size; durations are those of all
    their kernels. A kind holds either matched collectives or lone kernels, as its job does."""

    ones: tuple[Matched, ...]

    op: str | None = fact("operation")
    dtype: str | None = fact("element type, as PyTorch names it")
    elements: int | None = fact("elements of the message")
    bytes: int | None = fact("size of the message", "B")
    group_size: int | None = fact("ranks of the group")
    count = derived("collectives", type=int)(lambda kind: len(kind.ones))
    latency_us_median = _us("median latency")(lambda kind: _median(kind.latencies))
    latency_us_min = _us("shortest latency")(lambda kind: min(kind.latencies, default=None))
    latency_us_max = _us("longest latency")(lambda kind: max(kind.latencies, default=None))
    start_skew_us_median = _us("median skew of the starts")(
        lambda kind: _median(one.start_skew_ns for one in kind.ones)
    )
    end_skew_us_median = _us("median skew of the ends")(
        lambda kind: _median(one.end_skew_ns for one in kind.ones)
    )
    algbw_gbps_median = derived("median algorithm bandwidth", "10⁹ B/s", type=float | None)(
        _bandwidth("algorithm_bandwidth")
    )
    busbw_gbps_median = derived("median bus bandwidth", "10⁹ B/s", type=float | None)(
        _bandwidth("bus_bandwidth")
    )
    above_link = derived(
        "whether a bus bandwidth among them exceeds the links of a GPU", type=bool
    )(lambda kind: any(one.is_above_link for one in kind.ones))
    complete = derived("whether all ranks of the groups have a file", type=bool)(
        lambda kind: all(one.is_complete for one in kind.ones)
    )
    duration_us_sum = _us("total duration of all their kernels")(lambda kind: sum(kind.durations))
    duration_us_min = _us("shortest duration")(lambda kind: min(kind.durations))
    duration_us_median = _us("median duration")(lambda kind: _median(kind.durations))

    @cached_property
    def latencies(self) -> list[int]:
        """Latencies in ns; [] for lone kernels."""
        return [one.latency_ns for one in self.ones if not one.is_lone]

    @cached_property
    def durations(self) -> list[int]:
        """Durations of all kernels, in ns."""
        return [kernel.duration_ns for one in self.ones for _, kernel in one.members]


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
        spans = sorted(
            (one.span[0] + shift, one.span[1] + shift)
            for one in self.job.ranks
            if one.span != (0, 0)
            for shift in (self.offsets_ns.get(one.rank or 0, 0),)
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
                rank=rank,
                collectives=took_part[rank],
                last_count=last[rank],
                last_share=last[rank] / took_part[rank] if took_part[rank] else 0.0,
                waited_ns=waited[rank],
            )
            for rank in sorted(ranks)
        ]

    @cached_property
    def listed(self) -> tuple[Matched, ...]:
        """The matched collectives; where there are none, as with a single rank, each kernel by
        itself (:attr:`Matched.is_lone`)."""
        if self.matching.matched:
            return self.matching.matched
        alone = [
            Matched(group=kernel.group, members=((rank, kernel),))
            for rank, trace in self.job.by_rank.items()
            for kernel in trace.collectives
        ]
        return tuple(sorted(alone, key=lambda one: (one.start_ns, one.members[0][0])))

    @cached_property
    def kinds(self) -> list[JobKind]:
        """Collectives grouped by what they do, those with the most time first."""
        facts = ("op", "dtype", "elements", "bytes", "group_size")
        kinds = [
            JobKind(**dict(zip(facts, key, strict=True)), ones=tuple(ones))
            for key, ones in grouped(self.listed, attrgetter(*facts)).items()
        ]
        return sorted(kinds, key=lambda kind: -sum(one.latency_ns for one in kind.ones))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes that a reader of the figures needs: missing ranks, mismatches, clocks."""
        return (*self.job.notes, *_notes_on_ranks(self), *_notes_on_values(self))


def analyse_jobs(traces: Iterable[RankTrace]) -> list[JobCollectives]:
    """Groups traces into jobs and matches the collectives of each.

    Raises:
        RequestError: a rank occurs twice in a job.
    """
    return [analyse_job(job) for job in group_jobs(traces)]


def analyse_job(job: TraceJob) -> JobCollectives:
    """The collectives of `job`, matched, with the offsets of its clocks."""
    matching = match(job)
    found = JobCollectives(job, matching, tuple(clock_offsets(job, matching.matched)))
    if not found.offsets_ns:
        return found
    on_one_clock = {one.rank: one for one in found.stragglers(corrected=True)}
    clocks = tuple(
        replace(
            one, corrected_last_count=on_one_clock[one.rank].last_count,
            corrected_waited_ns=on_one_clock[one.rank].waited_ns,
        )
        for one in found.clocks
    )  # fmt: skip
    matched = tuple(replace(one, offsets_ns=found.offsets_ns) for one in matching.matched)
    return JobCollectives(job, replace(matching, matched=matched), clocks)


def _notes_on_ranks(found: JobCollectives) -> Iterator[str]:
    """Notes on missing data, and on differences between ranks."""
    job, mismatches = found.job, found.matching.mismatches
    if job.missing:
        size = job.world_size or len(job.ranks) + len(job.missing)
        which = f"{noun_for(len(job.missing), 'rank')} {format_numbers(job.missing)} of {size}"
        have = noun_for(len(job.missing), "has", "have")
        yield f"{which} {have} no file: times are those of the other ranks"
    for one in mismatches[:_MOST_SHOWN]:
        group = f"group {one.group!r}, " if one.group else ""
        yield f"{group}after {one.after} matched: {one.what}"
    more = len(mismatches) - _MOST_SHOWN
    if more > 0:
        yield f"and {plural(more, 'more mismatch', 'more mismatches')}"
    if count := sum(one.is_group_inferred for one in found.matching.matched):
        which = plural(count, "matched collective")
        yield f"the traces name no group for {which}, assumed to be of all {len(job.ranks)} ranks"


def _notes_on_values(found: JobCollectives) -> Iterator[str]:
    """Clocks that differ, collectives that did not run together, impossible bandwidths."""
    matched, offsets = found.matching.matched, found.offsets_ns
    if applied := [one for one in found.clocks if one.applied_ns]:
        ranks = (f"rank {one.rank} by {one.applied_ns / 1000:+.1f} µs" for one in applied[:8])
        more = f" and {len(applied) - 8} more" if len(applied) > 8 else ""
        yield (f"clocks differ from rank {found.clocks[0].rank}'s: {', '.join(ranks)}{more}; "
               "corrected values are next to the recorded ones")  # fmt: skip
    # The last rank began after the first one had ended.
    if apart := sum(one.is_apart(offsets) for one in matched):
        yield (f"{apart} of {len(matched)} matched collectives did not run at the same time on all "
               "ranks: clocks differ, or a recording lacks some of them")  # fmt: skip
    if above := [one for one in matched if one.is_above_link]:
        link = min(k.link_gbps for one in above for _, k in one.members if k.link_gbps is not None)
        which = plural(len(above), "collective")
        yield (f"the bus bandwidth of {which} (marked with !) is above the {link:,.0f} GB/s that a "
               "GPU's links transfer in one direction: the switch reduced or multicast (NVLS, "
               "SHARP), so the links transferred less; or a size or time is wrong")  # fmt: skip


_MOST_SHOWN = 10
