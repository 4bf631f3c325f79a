"""Exact arithmetic on sets of time, in whole nanoseconds.

A set is a list of half-open intervals [start, end), sorted, disjoint and not touching; empty
intervals vanish. Everything is integer, so lengths add up to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemmetry.formats.events import Bools, Int64


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set of time."""

    start: Int64
    end: Int64

    @property
    def length(self) -> int:
        """Total, ns."""
        return int((self.end - self.start).sum())

    def __len__(self) -> int:
        return len(self.start)


def union(start: Int64, duration: Int64) -> Intervals:
    """All time that at least one of the events [start, start + duration) covers."""
    chosen = np.flatnonzero(duration > 0)
    if not len(chosen):
        return Intervals(chosen, chosen)
    chosen = chosen[np.argsort(start[chosen], kind="stable")]
    start = start[chosen]
    reached = start + duration[chosen]
    np.maximum.accumulate(reached, out=reached)
    opens = np.ones(len(start), bool)
    opens[1:] = start[1:] > reached[:-1]
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(start)) - 1
    return Intervals(start[first], reached[last])


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """Time in both sets."""
    return _select(left, right, lambda in_left, in_right: in_left & in_right)


def subtract(left: Intervals, right: Intervals) -> Intervals:
    """Time in `left` and not in `right`."""
    return _select(left, right, lambda in_left, in_right: in_left & ~in_right)


def within(intervals: Intervals, start: int, end: int) -> Intervals:
    """Time of the set in [start, end)."""
    first = int(np.searchsorted(intervals.end, start, side="right"))
    last = int(np.searchsorted(intervals.start, end, side="left"))
    found = slice(first, last if start < end else first)
    return Intervals(
        np.maximum(intervals.start[found], start), np.minimum(intervals.end[found], end)
    )


def covered(start: Int64, duration: Int64, by: Intervals) -> Int64:
    """How many ns of each event [start, start + duration) lie in the set `by`."""
    if len(by) == 0:
        return np.zeros(len(start), np.int64)
    return _before(start + duration, by) - _before(start, by)


def _before(moment: Int64, by: Intervals) -> Int64:
    """Time of the set before each moment, in ns."""
    whole = np.concatenate([[0], np.cumsum(by.end - by.start)])
    index = np.searchsorted(by.start, moment, side="right")
    # The interval that began last may still be open at the moment.
    previous = np.maximum(index - 1, 0)
    over = np.where(index > 0, np.maximum(by.end[previous] - moment, 0), 0)
    result: Int64 = whole[index] - over
    return result


def _select(left: Intervals, right: Intervals, keep: Callable[[Bools, Bools], Bools]) -> Intervals:
    edges = np.concatenate([left.start, left.end, right.start, right.end])
    edges.sort()
    # Equivalent to np.unique, which would import numpy's masked arrays.
    moments = edges[np.append(True, edges[1:] != edges[:-1])] if len(edges) else edges
    if len(moments) < 2:
        return Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
    begins = moments[:-1]
    chosen = keep(_contains(left, begins), _contains(right, begins))
    return union(begins[chosen], np.diff(moments)[chosen])


def _contains(intervals: Intervals, moments: Int64) -> Bools:
    index = np.searchsorted(intervals.start, moments, side="right") - 1
    inside = index >= 0
    inside[inside] = moments[inside] < intervals.end[index[inside]]
    return inside
