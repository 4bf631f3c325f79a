"""Aligns one rank's sequence of collectives with another rank's.

All ranks of a group issue its collectives in the same order, so order decides, and the recorded
properties of paired entries must agree. Recordings begin and end at different collectives on
different ranks, and lose some: then properties and times determine the alignment. A collective that
synchronises ends on all ranks within microseconds, while the time from one to the next varies by
far more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gemmetry.formats.events import MISSING, Bools, Int64

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
    ones, others = _filled(left, right, ones, others, _OrderedTimes(offset, far, strict))
    return Alignment(ones, others, offset)


class _OrderedTimes(NamedTuple):
    offset: float
    far: float
    strict: bool
    """Remove pairs that should end together and do not."""


def _far(entries: Entries) -> float:
    """Half the usual time between two ends: an entry further away is more likely another
    collective."""
    steps = np.abs(np.diff(entries.end_ns))
    return max(1.0, float(np.median(steps)) / 2) if len(steps) else float("inf")


def _offset(left: Entries, right: Entries, far: float) -> float:
    """The most frequent difference of ends of entries that agree and are near in order; the
    smallest of several that are about equally frequent."""
    most = MOST_SHIFT + abs(len(right) - len(left))
    step = max(1, len(left) * (2 * most + 1) // _MOST_DIFFERENCES)
    chosen = np.arange(0, len(left), step)
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
    middles = np.array([np.median(differences[i : last[i]]) for i in _few(frequent)])
    return float(middles[np.argmin(np.abs(middles))])


def _few(indices: Int64) -> Int64:
    """A few hundred at most of many neighbouring positions, including the first and the last."""
    places = np.linspace(0, len(indices) - 1, min(len(indices), 512)).astype(np.int64)
    found: Int64 = indices[np.unique(places)]
    return found


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
    found: Int64 = order[np.where(is_before, before, after)]
    return found


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
        found = _cheapest(part, other, times)
        pairs.append(found + np.array([begin, other_begin]))
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
    gaps = _GAP * np.arange(columns + 1)
    cost = gaps
    moves = np.full((rows + 1, columns + 1), _RIGHT, np.int8)
    for i in range(rows):
        apart = np.abs(right.end_ns - left.end_ns[i] - times.offset) / times.far
        fits = agree(left.properties[i], right.properties)
        if times.strict:
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
