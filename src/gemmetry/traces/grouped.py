"""Statistics of groups of values, all groups at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmetry.formats.events import Int64

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """One entry a group; NaN where a group is empty, `std` also where it has one value."""

    count: Int64
    sum: npt.NDArray[Any]
    mean: Floats
    median: Floats
    std: Floats
    """Of the sample: with n - 1."""
    min: Floats
    max: Floats


def grouped_statistics(group: Int64, values: npt.NDArray[Any], groups: int) -> GroupStatistics:
    """Statistics of `values` by `group` (numbers from 0 to below `groups`).

    Sums of integers are exact.
    """
    count = np.bincount(group, minlength=groups)
    order = np.lexsort((values, group))
    ordered = values[order]
    ends = np.cumsum(count)
    filled = count > 0
    first = (ends - count)[filled]
    of_filled = count[filled]
    total = np.zeros(groups, values.dtype)
    mean, median, std, low, high = (np.full(groups, np.nan) for _ in range(5))
    if len(first):
        total[filled] = np.add.reduceat(ordered, first)
        mean[filled] = total[filled] / of_filled
        median[filled] = (
            ordered[first + (of_filled - 1) // 2].astype(float) + ordered[first + of_filled // 2]
        ) / 2
        low[filled], high[filled] = ordered[first], ordered[first + of_filled - 1]
        squares = np.add.reduceat(np.square(ordered - np.repeat(mean[filled], of_filled)), first)
        several = of_filled > 1
        std[np.flatnonzero(filled)[several]] = np.sqrt(squares[several] / (of_filled[several] - 1))
    return GroupStatistics(count, total, mean, median, std, low, high)


def busy_by_owner(owner: Int64, start: Int64, duration: Int64, owners: int) -> Int64:
    """For each owner the length of the union of its intervals [start, start + duration), ns.

    Args:
        owner: numbers from 0 to below `owners`; intervals of one may overlap.
    """
    result = np.zeros(owners, np.int64)
    if not len(owner):
        return result
    order = np.lexsort((start, owner))
    owner, start = owner[order], start[order]
    end = start + duration[order]
    first = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    # Owners are put one behind the other, so that one running maximum serves all of them.
    span = np.maximum.reduceat(end, first) - start[first]
    shift = np.cumsum(span) - span - start[first]
    moved = np.repeat(shift, np.diff(np.append(first, len(owner))))
    start, end = start + moved, end + moved
    reached = np.maximum.accumulate(end)
    begins = start.copy()
    begins[1:] = np.maximum(start[1:], reached[:-1])
    covered = np.maximum(end - begins, 0)
    result[owner[first]] = np.add.reduceat(covered, first)
    return result
