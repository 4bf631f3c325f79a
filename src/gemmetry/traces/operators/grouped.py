"""Statistics of groups of values, all groups at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmetry.formats.events import Int64

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]

_BLOCK = 1 << 18
"""Rows processed at a time."""

_DENSE = 4
"""Number of possible codes per row up to which a table of all codes is faster than sorting."""

_WIDEST = 2**31
"""Different numbers of a column, more than there can be rows: two such make a pair of 62 bits."""


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """One entry per group; NaN where a group is empty, and for `std` also where it has one
    value."""

    count: Int64
    sum: npt.NDArray[Any]
    mean: Floats
    median: Floats
    std: Floats
    """Sample standard deviation, with n - 1."""
    min: Floats
    max: Floats


def distinct_rows(*columns: Integers) -> tuple[Int64, Int64]:
    """The distinct rows of a table of integers, and the index of each row among them.

    The same as ``np.unique(..., axis=0)`` with ``return_inverse``, which compares whole rows:
    several times slower, and with several copies of the table in memory.

    Args:
        columns: (rows,) each, at least one.

    Returns:
        (distinct rows, columns) in ascending order, the first column before the second; (rows,).
    """
    rows = len(columns[0])
    code, span = np.zeros(rows, np.int64), 1
    for column in columns:
        low = int(column.min(initial=0))
        width = int(column.max(initial=0)) - low + 1
        if width > _WIDEST:
            column, low, width = np.unique(column, return_inverse=True)[1], 0, rows
        if span * width > _WIDEST**2:
            code, span = np.unique(code, return_inverse=True)[1], rows
        code *= width
        code += column
        code -= low
        span *= width
    which = _ranks(code, span)
    # Any of several equal rows represents them.
    example = np.empty(int(which.max(initial=-1)) + 1, np.int64)
    example[which] = np.arange(rows)
    return np.column_stack([column[example] for column in columns]).astype(np.int64), which


def _ranks(code: Int64, span: int) -> Int64:
    """The index of each code among the distinct ones; codes are from 0 to below `span`."""
    if span <= _DENSE * len(code):
        present = np.zeros(span, bool)
        present[code] = True
        found: Int64 = (np.cumsum(present) - 1)[code]
        return found
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    begins = np.append(False, ordered[1:] != ordered[:-1])[: len(code)]
    code[order] = np.cumsum(begins)
    return code


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
        distances = np.repeat(mean[filled], of_filled)
        np.subtract(ordered, distances, out=distances)
        squares = np.add.reduceat(np.square(distances, out=distances), first)
        several = of_filled > 1
        std[np.flatnonzero(filled)[several]] = np.sqrt(squares[several] / (of_filled[several] - 1))
    return GroupStatistics(count, total, mean, median, std, low, high)


def busy_by_owner(
    owner: Integers, row: Integers, start: Int64, duration: Int64, owners: int
) -> Int64:
    """For each owner the length of the union of its intervals [start, start + duration), ns.

    Args:
        owner: numbers from 0 to below `owners`; intervals of one may overlap.
        row: of `start` and `duration`, for each entry of `owner`.
    """
    result = np.zeros(owners, np.int64)
    if not len(owner):
        return result
    order = np.lexsort((start[row], owner))
    begin = 0
    while begin < len(order):
        # A few complete owners at a time, so that little memory is needed besides the order.
        end = min(begin + _BLOCK, len(order))
        if end < len(order):
            end = int(np.searchsorted(owner, owner[order[end - 1]], "right", sorter=order))
        places = order[begin:end]
        rows = row[places]
        _add_busy(result, owner[places], start[rows], duration[rows])
        begin = end
    return result


def _add_busy(result: Int64, owner: Integers, start: Int64, duration: Int64) -> None:
    """Set the entries of `owner`, whose rows are in order."""
    end = start + duration
    first = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    # Owners are concatenated in time, so that one running maximum serves all of them.
    span = np.maximum.reduceat(end, first) - start[first]
    shift = np.cumsum(span) - span - start[first]
    moved = np.repeat(shift, np.diff(np.append(first, len(owner))))
    start, end = start + moved, end + moved
    reached = np.maximum.accumulate(end)
    begins = start.copy()
    begins[1:] = np.maximum(start[1:], reached[:-1])
    covered = np.maximum(end - begins, 0)
    result[owner[first]] = np.add.reduceat(covered, first)
