"""Finds the runtime call and the operator that launched each piece of work on a GPU.

A GPU row identifies its launch by a correlation number; the operators that enclose that call on its
thread are the origin of the work. Where the call is not in the file (it was made before the
recording began) or is not inside an operator, the operator's number in the row itself (``External
id``) is used instead.

Sets of time are lists of half-open intervals [start, end), sorted, disjoint and not touching; empty
intervals vanish. Everything is integer, so lengths add up to the nanosecond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec
import numpy as np

from gemmetry.formats.events import (
    MOST_ELEMENTS,
    Bools,
    Int32,
    Int64,
    OperatorArguments,
    OperatorRows,
    TraceRows,
    is_launch,
    process_of,
)

NONE = -1


_BLOCK = 1 << 16
"""Rows converted to Python numbers at a time, which take 40 bytes each."""


@dataclass(frozen=True, slots=True)
class JoinedLaunches:
    """Origin of each row of ``TraceRows.gpu``; -1 means "not in the file"."""

    call: Int64
    """Row of ``TraceRows.calls``."""
    operator: Int64
    """Row of ``TraceRows.operators``: the innermost one around the call."""
    parent: Int64
    """One entry per operator: the operator around it on the same thread."""
    from_graph: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Launched as part of a CUDA or HIP graph, so that the operators around the call are not those
    from which the work was captured."""


def join_launches(rows: TraceRows) -> JoinedLaunches:
    """The origin of all work on GPUs."""
    call, _ = calls_of(rows)
    used = np.unique(call[call != NONE])
    parent, around = enclosing(rows.operators, rows.calls.thread[used], rows.calls.start_ns[used])
    operator = np.full(len(call), NONE, np.int64)
    has_call = call != NONE
    operator[has_call] = around[np.searchsorted(used, call[has_call])]
    lost = np.flatnonzero(operator == NONE)
    external = rows.gpu.external_id[lost]
    of_call = call[lost]
    unlinked = (external <= 0) & (of_call != NONE)
    external[unlinked] = rows.calls.external_id[of_call[unlinked]]
    operator[lost] = _by_external_id(rows.operators, external, rows.threads)
    is_graph = np.array(["graphlaunch" in name.lower() for name in rows.names], bool)
    return JoinedLaunches(
        call, operator, parent, from_graph=np.append(is_graph[rows.calls.name], False)[call]
    )


def calls_of(rows: TraceRows) -> tuple[Int64, Int64]:
    """The runtime call of each row of ``rows.gpu``, by correlation number.

    Several launches have the same number where processes were merged into one file, because every
    process counts from the same numbers: none of them is certain. Of other calls with the same
    number (damaged files), the last one that began before the row did is its call.

    Returns:
        (rows,) the rows of ``rows.calls``; and the rows of ``rows.gpu`` with a number of several
        launches, or of calls of several processes.
    """
    gpu, calls = rows.gpu, rows.calls
    result = np.full(len(gpu.start_ns), NONE, np.int64)
    ambiguous = np.zeros(0, np.int64)
    known = np.flatnonzero(calls.correlation > 0)
    if not len(known):
        return result, ambiguous
    order = known[np.lexsort((calls.start_ns[known], calls.correlation[known]))]
    numbers = calls.correlation[order]
    first = np.searchsorted(numbers, gpu.correlation, side="left")
    last = np.searchsorted(numbers, gpu.correlation, side="right")
    found = (first < last) & (gpu.correlation > 0)
    result[found] = order[first[found]]
    several = np.flatnonzero(found & (last - first > 1))
    if len(several):
        begun = _not_after(
            (numbers, calls.start_ns[order]), (gpu.correlation[several], gpu.start_ns[several])
        )
        result[several] = order[np.maximum(begun - 1, first[several])]
        begin, end = first[several], last[several]
        is_launch_name = np.array([is_launch(name) for name in rows.names], bool)
        launches = np.append(0, np.cumsum(is_launch_name[calls.name[order]]))
        is_open = launches[end] - launches[begin] > 1
        is_open |= _of_several(calls.thread[order], rows.threads, begin, end)
        ambiguous = several[is_open]
        result[ambiguous] = NONE
    return result, ambiguous


def _of_several(thread: Int32, threads: Sequence[str], first: Int64, last: Int64) -> Bools:
    """Whether entries from `first` to before `last` of `thread` are of several processes."""
    processes: dict[str, int] = {}
    numbers = [processes.setdefault(process_of(name), len(processes)) for name in threads]
    if len(processes) < 2:
        return np.zeros(len(first), bool)
    process = np.array(numbers, np.int64)[thread]
    changes = np.cumsum(np.append(False, process[1:] != process[:-1]))
    return changes[last - 1] > changes[first]


def _not_after(pairs: tuple[Int64, Int64], limits: tuple[Int64, Int64]) -> Int64:
    """For each of `limits`, the number of the ascending `pairs` that are not greater."""
    count = len(pairs[0])
    first, second = (np.concatenate(both) for both in zip(pairs, limits, strict=True))
    order = np.lexsort((np.arange(len(first)) >= count, second, first))
    at = order >= count
    result = np.empty(len(limits[0]), np.int64)
    result[order[at] - count] = np.cumsum(~at)[at]
    return result


def enclosing(operators: OperatorRows, thread: Int64, moment: Int64) -> tuple[Int64, Int64]:
    """Operators around operators, and around moments on threads.

    Of two operators with the same interval, which is frequent with clocks of microsecond
    resolution, the one with the smaller external id began first and encloses the other.

    Args:
        thread, moment: (points,) where and when, in ns.

    Returns:
        (operators,) the operator around each operator, and (points,) around each point; -1: none.
    """
    count = len(operators.start_ns)
    threads = np.concatenate([operators.thread, thread])
    starts = np.concatenate([operators.start_ns, moment])
    order = _outside_in(operators, threads, starts)
    result = np.full(len(order), NONE, np.int64)
    stack: list[int] = []
    ends: list[int] = []
    previous = None
    for begin in range(0, len(order), _BLOCK):
        rows = order[begin : begin + _BLOCK]
        is_operator = rows < count
        lengths = np.zeros(len(rows), np.int64)
        lengths[is_operator] = operators.duration_ns[rows[is_operator]]
        around = []
        for row, of_thread, start, length in zip(
            rows.tolist(), threads[rows].tolist(), starts[rows].tolist(), lengths.tolist(),
            strict=True,
        ):  # fmt: skip
            if of_thread != previous:
                stack.clear()
                ends.clear()
                previous = of_thread
            while ends and ends[-1] <= start:
                stack.pop()
                ends.pop()
            around.append(stack[-1] if stack else NONE)
            if row < count:
                stack.append(row)
                # An operator of zero duration still encloses points at the same moment.
                ends.append(start + max(length, 1))
        result[rows] = around
    return result[:count], result[count:]


def _outside_in(operators: OperatorRows, threads: Int64, starts: Int64) -> Int64:
    """The order in which operators, and points after them in the arrays, begin on their threads:
    among those that begin together the longest operator comes first, points last."""
    order = np.lexsort((starts, threads))
    same = (np.diff(starts[order]) == 0) & (np.diff(threads[order]) == 0)
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[tied]
    is_point = rows >= len(operators.start_ns)
    length, rank = np.zeros((2, len(rows)), np.int64)
    length[~is_point] = operators.duration_ns[rows[~is_point]]
    rank[~is_point] = operators.external_id[rows[~is_point]]
    order[tied] = rows[np.lexsort((rank, -length, is_point, starts[rows], threads[rows]))]
    return order


def _by_external_id(operators: OperatorRows, wanted: Int64, threads: Sequence[str]) -> Int64:
    """The operator with each number; -1 where there is none, or operators of several processes have
    it."""
    known = np.flatnonzero(operators.external_id > 0)
    result = np.full(len(wanted), NONE, np.int64)
    if not len(known) or not len(wanted):
        return result
    order = known[np.argsort(operators.external_id[known], kind="stable")]
    numbers = operators.external_id[order]
    place = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    found = np.flatnonzero((numbers[place] == wanted) & (wanted > 0))
    last = np.searchsorted(numbers, wanted[found], side="right")
    found = found[~_of_several(operators.thread[order], threads, place[found], last)]
    result[found] = order[place[found]]
    return result


class Tensor(NamedTuple):
    """Shape and element type, the latter as spelled in the trace; "" where it is missing."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def input_tensors(arguments: OperatorArguments) -> list[list[Tensor]]:
    """The tensors of each argument, in order: several for a list of tensors, [] for other arguments
    (scalars, and tensors without dimensions, which traces do not distinguish)."""
    shapes, dtypes = decoded_list(arguments.shapes), decoded_list(arguments.dtypes)
    result = []
    for shape, recorded in zip_longest(shapes, dtypes[: len(shapes)]):
        dtype = recorded if isinstance(recorded, str) and recorded != "TensorList" else ""
        several = isinstance(shape, list) and shape and isinstance(shape[0], list)
        ones = shape if several else [shape]
        result.append([Tensor(tuple(one), dtype) for one in ones if one and _is_shape(one)])
    return result


def _is_shape(sizes: Any) -> bool:
    """Whether `sizes` describe a tensor."""
    is_list = isinstance(sizes, list) and all(type(n) is int and n >= 0 for n in sizes)
    return is_list and math.prod(sizes) <= MOST_ELEMENTS


def decoded_list(text: str) -> list[Any]:
    """A list that is JSON in the trace; empty where it is not a list."""
    try:
        found = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return []
    return found if isinstance(found, list) else []


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
    first = np.flatnonzero(np.append(True, start[1:] > reached[:-1]))
    return Intervals(start[first], reached[np.append(first[1:], len(start)) - 1])


def subtract(left: Intervals, right: Intervals) -> Intervals:
    """Time in `left` and not in `right`."""
    edges = np.sort(np.concatenate([left.start, left.end, right.start, right.end]))
    begins = edges[:-1]
    chosen = _contains(left, begins) & ~_contains(right, begins)
    return union(begins[chosen], np.diff(edges)[chosen])


def within(intervals: Intervals, start: int, end: int) -> Intervals:
    """Time of the set in [start, end)."""
    first = int(np.searchsorted(intervals.end, start, side="right"))
    last = int(np.searchsorted(intervals.start, end, side="left"))
    found = slice(first, last if start < end else first)
    return Intervals(
        np.maximum(intervals.start[found], start), np.minimum(intervals.end[found], end)
    )


def covered(start: Int64, duration: Int64, by: Intervals) -> Int64:
    """Time in ns of each event [start, start + duration) that lies in the set `by`."""
    if len(by) == 0:
        return np.zeros(len(start), np.int64)
    return _before(start + duration, by) - _before(start, by)


def _before(moment: Int64, by: Intervals) -> Int64:
    """Time of the set before each moment, in ns."""
    whole = np.concatenate([[0], np.cumsum(by.end - by.start)])
    index = np.searchsorted(by.start, moment, side="right")
    # The interval that began last may still be open at the moment.
    over = np.where(index > 0, np.maximum(by.end[index - 1] - moment, 0), 0)
    return whole[index] - over


def _contains(intervals: Intervals, moments: Int64) -> Bools:
    index = np.searchsorted(intervals.start, moments, side="right") - 1
    inside = index >= 0
    inside[inside] = moments[inside] < intervals.end[index[inside]]
    return inside


def enclosing_operator(operator: Int64, parent: Int64, chosen: Int64) -> Int64:
    """Nearest ancestor of each of `operator`, or itself, whose number in `chosen` is not -1; -1
    where there is none."""
    at = operator.copy()
    waiting = np.flatnonzero(at != NONE)
    while len(waiting):
        waiting = waiting[chosen[at[waiting]] == NONE]
        at[waiting] = parent[at[waiting]]
        waiting = waiting[at[waiting] != NONE]
    return at


def enclosing_among(operator: Int64, parent: Int64, chosen: Int64) -> Int64:
    """The numbers in `chosen` of :func:`enclosing_operator`.

    Args:
        chosen: (operators,) a number for chosen operators, -1 for the others.

    Returns:
        The numbers; -1 where no enclosing operator is chosen.
    """
    # NONE, the last index, stands for itself.
    return np.append(chosen, NONE)[enclosing_operator(operator, parent, chosen)]
