"""Which runtime call and which operator launched each piece of work on a GPU.

A GPU row names its launch by a correlation number; the operators that enclose that call on its
thread are the reason for the work. Where the call is not in the file (it was made before the
recording began) or lies in no operator, the number of the operator that the row itself carries
(``External id``) is the second way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmetry.formats.events import CallRows, GpuRows, Int64, OperatorRows, TraceRows

NONE = -1


@dataclass(frozen=True, slots=True)
class Launches:
    """Origin of each row of ``TraceRows.gpu``; -1 stands for "not in the file"."""

    call: Int64
    """Row of ``TraceRows.calls``."""
    operator: Int64
    """Row of ``TraceRows.operators``: the innermost one around the call."""
    parent: Int64
    """One entry an operator: the operator around it on the same thread."""
    from_graph: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Launched as a part of a CUDA or HIP graph, so that the operators around the call are not
    those that the work was recorded from."""


def join_launches(rows: TraceRows) -> Launches:
    """The origin of all work on GPUs."""
    call = calls_of(rows.gpu, rows.calls)
    used = np.unique(call[call != NONE])
    parent, around = enclosing(rows.operators, rows.calls.thread[used], rows.calls.start_ns[used])
    operator = np.full(len(call), NONE, np.int64)
    has_call = call != NONE
    operator[has_call] = around[np.searchsorted(used, call[has_call])]
    lost = np.flatnonzero(operator == NONE)
    external = rows.gpu.external_id[lost]
    of_call = call[lost]
    untold = (external <= 0) & (of_call != NONE)
    external[untold] = rows.calls.external_id[of_call[untold]]
    operator[lost] = _by_external_id(rows.operators, external)
    return Launches(call, operator, parent, _from_graph(rows, call))


def calls_of(gpu: GpuRows, calls: CallRows) -> Int64:
    """The runtime call of each row, by correlation number.

    Where several calls have the same number (damaged files, merged processes), the last one that
    began before the row did.
    """
    result = np.full(len(gpu.start_ns), NONE, np.int64)
    known = np.flatnonzero(calls.correlation > 0)
    if not len(known):
        return result
    order = known[np.lexsort((calls.start_ns[known], calls.correlation[known]))]
    numbers = calls.correlation[order]
    first = np.searchsorted(numbers, gpu.correlation, side="left")
    last = np.searchsorted(numbers, gpu.correlation, side="right")
    found = (first < last) & (gpu.correlation > 0)
    result[found] = order[first[found]]
    for row in np.flatnonzero(found & (last - first > 1)).tolist():
        candidates = order[first[row] : last[row]]
        before = np.searchsorted(calls.start_ns[candidates], gpu.start_ns[row], side="right")
        result[row] = candidates[max(int(before) - 1, 0)]
    return result


def enclosing(operators: OperatorRows, thread: Int64, moment: Int64) -> tuple[Int64, Int64]:
    """Operators around operators, and around moments on threads.

    Of two operators with the same interval, which clocks of microseconds make often, the one with
    the smaller external number began first and is around the other.

    Args:
        thread, moment: (points,) where and when, in ns.

    Returns:
        (operators,) the operator around each operator, and (points,) around each point; -1: none.
    """
    count = len(operators.start_ns)
    threads = np.concatenate([operators.thread, thread])
    starts = np.concatenate([operators.start_ns, moment])
    ends = np.concatenate([operators.start_ns + operators.duration_ns, moment])
    # Points come behind all operators that begin at the same moment.
    rank = np.concatenate([operators.external_id, np.zeros(len(moment), np.int64)])
    is_point = np.arange(len(starts)) >= count
    order = np.lexsort((rank, -ends, is_point, starts, threads))
    around = [NONE] * len(starts)
    stack: list[int] = []
    ends_of = ends.tolist()
    starts_of = starts.tolist()
    previous = None
    for row, thread_of in zip(order.tolist(), threads[order].tolist(), strict=True):
        if thread_of != previous:
            stack.clear()
            previous = thread_of
        begin = starts_of[row]
        # An operator of no length still holds what begins at the same moment.
        while stack and ends_of[stack[-1]] <= begin and starts_of[stack[-1]] < begin:
            stack.pop()
        if stack:
            around[row] = stack[-1]
        if row < count:
            stack.append(row)
    result = np.array(around, np.int64)
    return result[:count], result[count:]


def _by_external_id(operators: OperatorRows, wanted: Int64) -> Int64:
    """The operator with each number; -1 where there is none."""
    known = np.flatnonzero(operators.external_id > 0)
    result = np.full(len(wanted), NONE, np.int64)
    if not len(known) or not len(wanted):
        return result
    order = known[np.argsort(operators.external_id[known], kind="stable")]
    numbers = operators.external_id[order]
    place = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    found = (numbers[place] == wanted) & (wanted > 0)
    result[found] = order[place[found]]
    return result


def _from_graph(rows: TraceRows, call: Int64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    is_graph = np.array(["graphlaunch" in name.lower() for name in rows.names], bool)
    result = np.zeros(len(call), bool)
    has_call = call != NONE
    result[has_call] = is_graph[rows.calls.name[call[has_call]]]
    return result
