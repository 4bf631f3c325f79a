"""Aligns one rank's sequence of collectives with another rank's.

All ranks of a group issue its collectives in the same order, so order decides, and the recorded
properties of paired entries must agree. Recordings begin and end at different collectives on
different ranks, and lose some: then properties and times determine the alignment. A collective that
synchronises ends on all ranks within microseconds, while the time from one to the next varies by
far more.

One collective as recorded by all ranks: skews, waits, latency and bandwidth.

Estimates the clock offsets of a job's ranks from collectives that end together.

A collective in which every rank needs data of every other one ends on all ranks within
microseconds, so the median difference of its end times is the difference of the clocks. The times
also bound the offset: no rank can end before the last one has begun. A single recording cannot
distinguish clock offsets from stragglers by start times, so those are not used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gemmetry.domain.rows import Row, derived, fact
from gemmetry.formats.events import MISSING, Bools, Int64
from gemmetry.traces.collectives.summary import (
    ELEMENT_BYTES,
    POINT_TO_POINT,
    SYNCHRONISING,
    Collective,
    Group,
    bus_factor,
    exchanged_elements,
    gigabytes_per_second,
    message_bytes,
)
from gemmetry.traces.jobs import TraceJob

MOST_SHIFT = 64
"""Number of entries by which one recording may begin earlier than another, beyond the difference of
their lengths."""

FEWEST_ANCHORS = 8
"""Times override order only with at least this many pairs that end together."""

_TIGHTER = 10
_SCATTER_NS = 2000.0
"""... whose ends scatter by this factor less than those of the pairs in order. On 4x H200 (8
recordings of FSDP, 2672 kernels) medians were 1.4 to 4.3 µs, and up to 68 µs for all-gathers on 32
channels; for pairs that are off by one, milliseconds."""

_AS_MANY = 0.8
"""A smaller difference of ends is preferred to the most frequent one if it has this share of its
frequency: with evenly spaced collectives all multiples of the spacing are about equally
frequent."""

_MOST_DIFFERENCES = 1 << 21
_MOST_CELLS = 1 << 22
"""Limits of memory and time: 16 MB and about 0.1 s; 4 MB and about 0.1 s."""

_PAIR, _LEFT, _RIGHT = 0, 1, 2
_GAP = 2.0
_LATE = 0.5
"""Cost of an entry without a partner, and of a pair whose ends are apart: two gaps on each side
cost as much as 8 late pairs."""


@dataclass(frozen=True, slots=True)
class Entries:
    """A sequence of collectives: ends, and one number per recorded property (equal numbers mean
    equal values, ``MISSING`` matches all)."""

    end_ns: Int64
    properties: Int64
    """(entries, properties)."""
    together: Bools
    """Whether each entry ends on all ranks at the same time."""

    def __len__(self) -> int:
        return len(self.end_ns)

    def __getitem__(self, part: slice) -> Entries:
        return Entries(self.end_ns[part], self.properties[part], self.together[part])


class Alignment(NamedTuple):
    """Pairs (left, right) in ascending order, and the offset that converts the left clock to the
    right one, in ns."""

    left: Int64
    right: Int64
    offset_ns: float


def agree(left: Int64, right: Int64) -> Bools:
    """Whether entries agree in all properties recorded for both: (..., properties) -> (...)."""
    same: Bools = ((left == right) | (left == MISSING) | (right == MISSING)).all(axis=-1)
    return same


def align(left: Entries, right: Entries) -> Alignment:
    """The pairs of two sequences.

    Two sequences of the same length that agree everywhere are paired in order, unless times
    clearly show that one began earlier. Otherwise pairs that end together are found, and the
    entries between them are aligned by their properties.
    """
    count = len(left)
    if not count or not len(right):
        nothing = np.zeros(0, np.int64)
        return Alignment(nothing, nothing, 0.0)
    far = min(_far(left), _far(right))
    offset = _offset(left, right, far)
    ones, others = _anchors(left, right, offset, far)
    apart = np.abs(right.end_ns[others] - left.end_ns[ones] - offset)
    bound = _TIGHTER * float(np.median(apart)) + _SCATTER_NS if len(ones) else np.inf
    if count == len(right) and agree(left.properties, right.properties).all():
        in_order = right.end_ns - left.end_ns
        middle = float(np.median(in_order))
        is_sure = len(ones) >= max(FEWEST_ANCHORS, count / 2) and (ones != others).any()
        if not is_sure or np.abs(in_order - middle).max() <= bound:
            every = np.arange(count)
            return Alignment(every, every, middle)
    # If ends scatter far less than collectives are apart, a late pair is not a pair.
    strict = len(ones) >= FEWEST_ANCHORS and bound < far
    ones, others = _filled(left, right, ones, others, (offset, far, strict))
    return Alignment(ones, others, offset)


_OrderedTimes: TypeAlias = tuple[float, float, bool]
"""Offset of the clocks; from which distance ends are apart; whether pairs that should end together
and do not are removed."""


def _far(entries: Entries) -> float:
    """Half the usual time between two ends: an entry further away is more likely another
    collective."""
    steps = np.abs(np.diff(entries.end_ns))
    return max(1.0, float(np.median(steps)) / 2) if len(steps) else float("inf")


def _offset(left: Entries, right: Entries, far: float) -> float:
    """The most frequent difference of ends of entries that agree and are near in order; the
    smallest of several that are about equally frequent."""
    most = MOST_SHIFT + abs(len(right) - len(left))
    chosen = np.arange(0, len(left), max(1, len(left) * (2 * most + 1) // _MOST_DIFFERENCES))
    found = []
    for shift in range(-min(most, len(left) - 1), min(most, len(right) - 1) + 1):
        i = chosen[(chosen + shift >= 0) & (chosen + shift < len(right))]
        i = i[agree(left.properties[i], right.properties[i + shift])]
        found.append(right.end_ns[i + shift] - left.end_ns[i])
    differences = np.sort(np.concatenate(found))
    if not len(differences):
        return float(np.median(right.end_ns) - np.median(left.end_ns))
    width = far / 4 if np.isfinite(far) else 0.0
    last = np.searchsorted(differences, differences + width, "right")
    counts = last - np.arange(len(differences))
    frequent = np.flatnonzero(counts >= _AS_MANY * counts.max())
    # A few hundred at most of many neighbouring positions, including the first and the last.
    few = np.linspace(0, len(frequent) - 1, min(len(frequent), 512)).astype(np.int64)
    chosen = frequent[np.unique(few)]
    return float(min((np.median(differences[i : last[i]]) for i in chosen), key=abs))


def _anchors(left: Entries, right: Entries, offset: float, far: float) -> tuple[Int64, Int64]:
    """Pairs that are each other's nearest in time, agree, and are in the same order."""
    there = _nearest(left.end_ns + offset, right.end_ns)
    back = _nearest(right.end_ns - offset, left.end_ns)
    ones = np.flatnonzero(back[there] == np.arange(len(left)))
    others = there[ones]
    near = np.abs(right.end_ns[others] - left.end_ns[ones] - offset) <= far
    near &= agree(left.properties[ones], right.properties[others])
    ones, others = ones[near], others[near]
    rising = (others == np.maximum.accumulate(others)) & (
        others == np.minimum.accumulate(others[::-1])[::-1]
    )
    return ones[rising], others[rising]


def _nearest(moments: npt.NDArray[np.floating[Any]], ends: Int64) -> Int64:
    """The index of the nearest end for each moment."""
    order = np.argsort(ends, kind="stable")
    ascending = ends[order]
    after = np.clip(np.searchsorted(ascending, moments), 0, len(ends) - 1)
    before = np.maximum(after - 1, 0)
    is_before = np.abs(ascending[before] - moments) < np.abs(ascending[after] - moments)
    return order[np.where(is_before, before, after)]


def _filled(
    left: Entries, right: Entries, ones: Int64, others: Int64, times: _OrderedTimes
) -> tuple[Int64, Int64]:
    """The anchors, and pairs of the entries between them."""
    pairs = [np.stack([ones, others], axis=1)]
    starts_left, starts_right = np.append(0, ones + 1), np.append(0, others + 1)
    ends_left, ends_right = np.append(ones, len(left)), np.append(others, len(right))
    for place in np.flatnonzero((ends_left > starts_left) & (ends_right > starts_right)).tolist():
        begin, other_begin = int(starts_left[place]), int(starts_right[place])
        part = left[begin : int(ends_left[place])]
        other = right[other_begin : int(ends_right[place])]
        pairs.append(_cheapest(part, other, times) + np.array([begin, other_begin]))
    every = np.concatenate(pairs)
    every = every[np.argsort(every[:, 0], kind="stable")]
    return every[:, 0], every[:, 1]


def _cheapest(left: Entries, right: Entries, times: _OrderedTimes) -> Int64:
    """The cheapest alignment (Needleman and Wunsch 1970, J. Mol. Biol. 48), as (pairs, 2): pairs
    that disagree are forbidden, and late ones have a cost. Very long parts are paired in order."""
    rows, columns = len(left), len(right)
    if rows * columns > _MOST_CELLS:
        both = np.arange(min(rows, columns))
        both = both[agree(left.properties[both], right.properties[both])]
        return np.stack([both, both], axis=1)
    offset, far, strict = times
    gaps = _GAP * np.arange(columns + 1)
    cost = gaps
    moves = np.full((rows + 1, columns + 1), _RIGHT, np.int8)
    for i in range(rows):
        apart = np.abs(right.end_ns - left.end_ns[i] - offset) / far
        fits = agree(left.properties[i], right.properties)
        if strict:
            fits &= (apart <= 1) | ~right.together | ~left.together[i]
        price = np.where(fits, _LATE * np.minimum(1.0, apart * apart), np.inf)
        pair = np.append(np.inf, cost[:-1] + price)
        skip = cost + _GAP
        reached = np.minimum(pair, skip)
        cost = np.minimum.accumulate(reached - gaps) + gaps
        moves[i + 1] = np.where(cost < reached, _RIGHT, np.where(pair <= skip, _PAIR, _LEFT))
    pairs = []
    i, j = rows, columns
    while i and j:
        move = moves[i, j]
        i, j = i - (move != _RIGHT), j - (move != _LEFT)
        if move == _PAIR:
            pairs.append((i, j))
    return np.array(pairs[::-1], np.int64).reshape(-1, 2)


def _several(text: str, unit: str = "", *, key: str = "", type: Any = int | None) -> Any:
    """A fact that the unmatched kernel of a single rank does not have."""

    def declared(compute: Callable[[Matched], Any]) -> Any:
        return derived(text, unit, key=key, type=type)(
            lambda one: None if one.is_lone else compute(one)
        )

    return declared


class Matched(Row):
    """One collective as recorded by all traced ranks of its group."""

    group: Group | None
    members: tuple[tuple[int, Collective], ...]
    """(rank, kernel) pairs, by rank."""
    missing: tuple[int, ...] = ()
    """Ranks of the group without a file; times are those of the other ranks."""
    offsets_ns: Mapping[int, int] = field(default_factory=dict)
    """Offsets added to the clocks of ranks in corrected facts; {} where none is applied."""

    @derived("operation")
    def op(self) -> str | None:
        """The operation; ``send_recv`` for a send with its receive."""
        if self.is_lone:
            return self.members[0][1].op
        ops = {one.op for _, one in self.members if one.op}
        return "send_recv" if ops & set(POINT_TO_POINT) else next(iter(ops), None)

    @derived("elements of the message")
    def elements(self) -> int | None:
        """Elements of the whole message; of the largest one where ranks differ."""
        recorded = [one.elements for _, one in self.members if one.elements is not None]
        return max(recorded, default=None)

    dtype = derived("element type, as PyTorch names it", type=str | None)(
        lambda self: next((one.dtype for _, one in self.members if one.dtype), None)
    )
    start_skew_ns = _several("from the first to the last start", "µs")(
        lambda self: self.skews_ns()[0]
    )
    end_skew_ns = _several("from the first to the last end", "µs")(lambda self: self.skews_ns()[1])
    last = _several("the rank that began last", key="last_rank")(lambda self: self.last_rank())

    @derived("algorithm bandwidth", "10⁹ B/s", key="algbw_gbps")
    def algorithm_bandwidth(self) -> float | None:
        """S / latency in 10⁹ bytes/s; None where no trace records the size, where several kernels
        share it, and for an unmatched kernel."""
        if self.is_lone or any(one.is_shared for _, one in self.members):
            return None
        return gigabytes_per_second(self.bytes, self.latency_ns)

    @derived("bus bandwidth", "10⁹ B/s", key="busbw_gbps")
    def bus_bandwidth(self) -> float | None:
        """Bandwidth of the busiest link of a GPU, in 10⁹ bytes/s.

        For an all-to-all with unequal parts: the most that one rank sends to or receives from
        others, divided by the latency (param's definition, which equals nccl-tests' for equal
        parts).
        """
        algorithm, size = self.algorithm_bandwidth, self.group_size
        if algorithm is None:
            return None
        element = ELEMENT_BYTES.get(self.dtype or "")
        if self.op == "all_to_all" and size and element:
            return gigabytes_per_second(self._most_exchanged(size) * element, self.latency_ns)
        factor = bus_factor(self.op, size)
        return None if factor is None else algorithm * factor

    @derived("whether the bus bandwidth exceeds the links of a GPU", key="above_link")
    def is_above_link(self) -> bool:
        """Whether the bus bandwidth exceeds what the links of a GPU transfer in one direction:
        where the switch reduces or multicasts, they transfer less than it states."""
        links = [one.link_gbps for _, one in self.members if one.link_gbps is not None]
        return bool(links) and (self.bus_bandwidth or 0.0) > min(links)

    bytes = derived("size of the message", "B")(message_bytes)
    matched_latency_ns = _several("from the last start to the last end", "µs", key="latency_us")(
        attrgetter("latency_ns")
    )
    group_name = derived("name of the process group", key="group", type=str | None)(
        lambda self: self.group and self.group.name
    )

    @derived("ranks of the group")
    def group_size(self) -> int | None:
        """Size of its group; 2 for a send with its receive. Where no trace records it, it follows
        from input and output of an all-gather or reduce-scatter."""
        if self.op == "send_recv":
            return 2
        if self.group and self.group.size:
            return self.group.size
        for _, one in self.members:
            counts = (one.in_elements, one.out_elements)
            part, whole = counts if self.op == "all_gather" else counts[::-1]
            if self.op in ("all_gather", "reduce_scatter") and part and whole:
                return None if whole % part else whole // part
        return None

    @derived("first start", "ns")
    def start_ns(self) -> int:
        """Earliest start on any rank."""
        return min(one.start_ns for _, one in self.members)

    algorithm = derived("algorithm in the kernel's name", type=str | None)(
        lambda self: self.members[0][1].algorithm
    )
    protocol = derived("protocol in the kernel's name", type=str | None)(
        lambda self: self.members[0][1].protocol
    )
    waits_us = derived("how long each rank waited for the last", "µs", column="", type=dict)(
        lambda self: {str(rank): ns / 1000 for rank, ns in self.waits_ns().items()}
    )
    corrected_start_skew_ns = _several("start skew on one clock", "µs")(
        lambda self: self.skews_ns(self.offsets_ns)[0] if self.offsets_ns else None
    )
    corrected_end_skew_ns = _several("end skew on one clock", "µs")(
        lambda self: self.skews_ns(self.offsets_ns)[1] if self.offsets_ns else None
    )
    corrected_last_rank = _several("the rank that began last, on one clock")(
        lambda self: self.last_rank(self.offsets_ns) if self.offsets_ns else None
    )
    is_complete: bool = fact(
        "whether all ranks of the group have a file", key="complete", default=False
    )
    """Otherwise the latency is an upper bound and bandwidths are lower bounds, as a rank without a
    file may have been last."""
    rank = derived("the rank of a kernel that is not matched", type=int | None)(
        lambda self: self.members[0][0] if self.is_lone else None
    )

    @derived("latency, or the duration of a kernel that is not matched", "µs", key="duration_us")
    def latency_ns(self) -> int:
        """Shortest duration on any rank: that of the rank that was last, which did not wait."""
        return min(one.duration_ns for _, one in self.members)

    @property
    def is_lone(self) -> bool:
        """An unmatched kernel of one rank: its duration includes the wait for the others, so that
        it gives neither latency nor bandwidth."""
        return len(self.members) == 1

    @property
    def is_group_inferred(self) -> bool:
        """No trace records the group: all ranks of the job took part."""
        groups = (one.group for _, one in self.members if one.group)
        return self.is_complete and self.op != "send_recv" and not any(
            group.ranks or group.size for group in groups
        )  # fmt: skip

    def skews_ns(self, offsets: Mapping[int, int] | None = None) -> tuple[int, int]:
        """Latest minus earliest start, and latest minus earliest end; `offsets` are added to the
        ranks' clocks."""
        starts, ends = self._moments(offsets)
        return max(starts) - min(starts), max(ends) - min(ends)

    def is_apart(self, offsets: Mapping[int, int]) -> bool:
        """Whether at no moment all ranks ran it."""
        starts, ends = self._moments(offsets)
        return max(starts) > min(ends)

    def last_rank(self, offsets: Mapping[int, int] | None = None) -> int:
        """The rank with the latest start; the lowest of several."""
        starts, _ = self._moments(offsets)
        return self.members[starts.index(max(starts))][0]

    def waits_ns(self, offsets: Mapping[int, int] | None = None) -> dict[int, int]:
        """Latest start minus own start, by rank."""
        starts, _ = self._moments(offsets)
        pairs = zip(self.members, starts, strict=True)
        return {rank: max(starts) - start for (rank, _), start in pairs}

    def _moments(self, offsets: Mapping[int, int] | None) -> tuple[list[int], list[int]]:
        """The starts and the ends."""
        starts = [one.start_ns + (offsets or {}).get(rank, 0) for rank, one in self.members]
        pairs = zip(starts, self.members, strict=True)
        return starts, [start + one.duration_ns for start, (_, one) in pairs]

    def _most_exchanged(self, size: int) -> float:
        ranks = self.group.ranks if self.group else ()
        return max(0.0, *(
            exchanged_elements(elements, splits, ranks.index(r) if r in ranks else None, size)
            for r, one in self.members
            for elements, splits in (
                (one.in_elements, one.in_splits), (one.out_elements, one.out_splits),
            )
            if elements is not None
        ), 0.0)  # fmt: skip


def _clock_fact(text: str, name: str, default: int | None = None) -> Any:
    return fact(text, "µs", column=f"clock_{name}_us", default=default)


LEAST_NS = 5_000
SCATTERS = 5.0
"""An offset between nodes is applied where it is larger than both 5 us and 5 times its scatter, or
where the bounds exclude 0. With one clock (4x H200 of one host, 8 recordings of FSDP, `gemmetry
trace collectives`) the estimates for 24 ranks are between -0.3 and +1.2 us, their scatters 0.7 to
26 us."""


class ClockOffset(Row):
    """The offset to add to the times of one rank to convert them to those of the job's first rank:
    the median of the differences of ends, and their median absolute deviation."""

    rank: int = fact("rank of the trace", column="")
    node: int = fact("node of the rank")
    """Node, from 0; ranks of one node have the same clock."""
    offset_ns: int = _clock_fact(
        "offset that turns times of the rank into times of the first rank", "offset", 0
    )
    scatter_ns: int = _clock_fact("scatter of the offsets of single collectives", "scatter", 0)
    lower_ns: int | None = _clock_fact("lower bound of the offset", "lower")
    """No smaller offset is possible: with it a rank would have ended before another had begun. None
    where no collective provides a bound, or where no offset satisfies all collectives."""
    upper_ns: int | None = _clock_fact("upper bound of the offset", "upper")
    collectives: int = fact(
        "collectives from which the offset is computed", column="clock_collectives", default=0
    )
    """With 0, the offset is taken as 0."""
    applied_ns: int = _clock_fact("offset that is added to the rank's times", "applied", 0)
    """The node's offset, or 0 on the first rank's node unless the bounds exclude 0."""
    corrected_last_count: int | None = fact(
        "collectives that the rank began last, on one clock", default=None
    )
    corrected_waited_ns: int | None = fact(
        "time that the rank waited for others, on one clock", "µs", default=None
    )

    @property
    def excludes_0(self) -> bool:
        """Whether the clocks cannot be the same."""
        lower, upper = self.lower_ns, self.upper_ns
        return lower is not None and upper is not None and not lower <= 0 <= upper


def clock_offsets(job: TraceJob, matched: Sequence[Matched]) -> list[ClockOffset]:
    """The clock offset of each rank of `job`, by rank."""
    pairs = _pairs(matched)
    found = {rank: ClockOffset(rank=rank, node=node) for rank, node in node_numbers(job).items()}
    reached = sorted(found)[:1]
    known = {rank: replace(found[rank], lower_ns=0, upper_ns=0) for rank in reached}
    # From rank to rank, as not all ranks share a group with the first one.
    while reached:
        other = known[reached.pop(0)]
        for rank in sorted(found.keys() - known):
            if ones := pairs.get((other.rank, rank)):
                known[rank] = _estimated(found[rank], ones, other)
                reached.append(rank)
    return [
        replace(known[rank], applied_ns=_applied(known[rank], known)) if rank in known else one
        for rank, one in sorted(found.items())
    ]


def node_numbers(job: TraceJob) -> dict[int, int]:
    """The node of each rank: by host name where all traces record it; else ranks fill one node
    after the other, and a repeated device number begins the next node."""
    traces = job.by_rank
    hosts = {rank: one.host for rank, one in traces.items()}
    if all(hosts.values()):
        numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts.values()))}
        return {rank: numbers[host] for rank, host in hosts.items()}
    node, used = 0, set[int]()
    result = {}
    for rank in sorted(traces):
        devices = {one.device for one in traces[rank].collectives if one.device >= 0}
        if devices & used:
            node, used = node + 1, set()
        used |= devices
        result[rank] = node
    return result


def _pairs(matched: Sequence[Matched]) -> Mapping[tuple[int, int], list[tuple[Collective, ...]]]:
    """Both kernels of each synchronising collective, by pair of ranks in both orders."""
    result: dict[tuple[int, int], list[tuple[Collective, ...]]] = defaultdict(list)
    for one in matched:
        # The first rank of each group with every other one: enough to reach all.
        first, kernel = one.members[0]
        for rank, other in one.members[1:] if one.op in SYNCHRONISING else ():
            result[first, rank].append((kernel, other))
            result[rank, first].append((other, kernel))
    return result


def _estimated(
    own: ClockOffset, ones: Sequence[tuple[Collective, ...]], known: ClockOffset
) -> ClockOffset:
    """`own` with the offset that follows from pairs of kernels of a `known` rank and of its own."""
    ends = np.array([left.end_ns - right.end_ns for left, right in ones], np.int64)
    middle = round(float(np.median(ends)))
    scatter = round(float(np.median(np.abs(ends - middle))))
    lower = max(left.start_ns - right.end_ns for left, right in ones)
    upper = min(left.end_ns - right.start_ns for left, right in ones)
    if lower <= upper and known.lower_ns is not None and known.upper_ns is not None:
        own = replace(own, lower_ns=lower + known.lower_ns, upper_ns=upper + known.upper_ns)
    return replace(
        own, offset_ns=middle + known.offset_ns, scatter_ns=scatter + known.scatter_ns,
        collectives=len(ones),
    )  # fmt: skip


def _applied(own: ClockOffset, known: Mapping[int, ClockOffset]) -> int:
    if own.node == known[min(known)].node:
        return own.offset_ns if own.excludes_0 else 0
    peers = [one for one in known.values() if one.node == own.node]
    offset = round(float(np.median([one.offset_ns for one in peers])))
    scatter = float(np.median([one.scatter_ns for one in peers]))
    is_large = abs(offset) > max(LEAST_NS, SCATTERS * scatter)
    return offset if is_large or any(one.excludes_0 for one in peers) else 0
