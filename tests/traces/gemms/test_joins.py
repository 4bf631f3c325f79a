from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.formats.events import (
    AnnotationRows,
    CallRows,
    GpuRows,
    OperatorRows,
    TraceRows,
    concatenate,
)
from gemmetry.traces import joins
from gemmetry.traces.joins import NONE, enclosing


def names_of(trace, rows):
    names = trace.rows.names
    return [None if row == NONE else names[trace.rows.operators.name[row]] for row in rows]


def test_the_innermost_operator_around_the_launch_is_the_kernels(recording):
    made = recording()
    made.operator("aten::linear", 100, 900)
    made.operator("aten::t", 110, 50)
    made.operator("aten::addmm", 200, 700)
    made.call(1, 300)
    made.call(2, 950)
    made.call(3, 5000)
    for number in (1, 2, 3):
        made.kernel("k", 10_000 * number, 10, correlation=number)
    trace = made.trace()
    assert names_of(trace, trace.launches.operator) == ["aten::addmm", "aten::linear", None]
    assert trace.launches.call.tolist() == [0, 1, 2]
    assert names_of(trace, trace.launches.parent) == [None, "aten::linear", "aten::linear"]


PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), min_size=1, max_size=25)
"""Of a correlation number and a start."""


@given(PAIRS, PAIRS)
@settings(deadline=None, max_examples=100)
def test_of_several_calls_with_one_number_the_last_one_begun_before_is_the_launch(calls, kernels):
    def columns(kind, pairs):
        empty = concatenate(kind, [])
        filled = {name: np.zeros((len(pairs), *getattr(empty, name).shape[1:]), np.int64)
                  for name in kind.__slots__}  # fmt: skip
        filled["correlation"], filled["start_ns"] = np.array(pairs, np.int64).T
        return kind(**filled)

    whole = TraceRows(
        format="kineto", events=0, base_ns=0, names=("cudaMemcpyAsync",), arguments=(),
        collectives=(), threads=("1/1",), gpu=columns(GpuRows, kernels),
        calls=columns(CallRows, calls), operators=concatenate(OperatorRows, []),
        annotations=concatenate(AnnotationRows, []),
    )  # fmt: skip
    found, ambiguous = joins.calls_of(whole)
    assert not len(ambiguous)
    for (number, start), row in zip(kernels, found.tolist(), strict=True):
        same = [i for i, (other, _) in enumerate(calls) if other == number > 0]
        before = [i for i in same if calls[i][1] <= start]
        if not same:
            assert row == NONE
        elif before:
            assert row in before
            assert calls[row][1] == max(calls[i][1] for i in before)
        else:
            assert calls[row][1] == min(calls[i][1] for i in same)


def test_of_several_launches_with_one_number_none_is_certain(recording):
    """Of processes that have the same number, too, as in containers."""
    made = recording()
    for place in range(2):
        made.operator(f"aten::mm{place}", 100 + place, 50)
        made.call(7, 110 + place)
        made.kernel("k", 1000 + place, 10, correlation=7, device=place)
    made.launch("other", 8, at=2000, lasts=10)
    trace = made.trace()
    assert trace.launches.call.tolist() == [NONE, NONE, 2]
    assert joins.calls_of(trace.rows)[1].tolist() == [0, 1]


def test_operators_of_another_thread_are_not_around_a_launch(recording):
    made = recording()
    made.operator("aten::mm", 100, 900, thread=2)
    made.call(1, 300, thread=1)
    made.kernel("k", 5000, 10, correlation=1)
    assert made.trace().launches.operator.tolist() == [NONE]


def test_of_equal_intervals_the_smaller_external_number_is_outside(recording):
    made = recording()
    made.operator("aten::addmm", 1000, 1000, external=12)
    made.operator("aten::linear", 1000, 1000, external=11)
    made.call(1, 1000)
    made.kernel("k", 5000, 10, correlation=1)
    trace = made.trace()
    assert names_of(trace, trace.launches.operator) == ["aten::addmm"]
    assert names_of(trace, trace.launches.parent) == ["aten::linear", None]


def test_the_external_number_is_the_second_way(recording):
    made = recording()
    made.operator("aten::mm", 100, 50, external=77)
    made.kernel("lost", 5000, 10, correlation=9, **{"External id": 77})
    made.kernel("unknown", 6000, 10, correlation=10, **{"External id": 78})
    made.call(3, 20_000, **{"External id": 77})
    made.kernel("by its call", 21_000, 10, correlation=3)
    trace = made.trace()
    assert names_of(trace, trace.launches.operator) == ["aten::mm", None, "aten::mm"]
    assert trace.launches.call.tolist() == [NONE, NONE, 0]


def test_numbers_of_zero_and_below_link_nothing(recording):
    made = recording()
    made.call(0, 100)
    made.kernel("k", 3000, 10, correlation=0)
    made.kernel("without", 3000, 10)
    assert made.trace().launches.call.tolist() == [NONE, NONE]


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_kernels_of_graphs_are_marked(recording, name):
    made = recording()
    made.call(1, 100, name=name)
    made.launch("single", 2, at=500, lasts=5)
    made.kernel("of the graph", 300, 10, correlation=1)
    assert made.trace().launches.from_graph.tolist() == [False, True]


def test_a_trace_without_host_events_links_nothing(recording):
    made = recording()
    made.kernel("k", 3000, 10, correlation=4)
    launches = made.trace().launches
    assert launches.call.tolist() == launches.operator.tolist() == [NONE]


def operators(intervals):
    """Rows of (thread, start, end)."""
    count = len(intervals)
    unknown = np.full(count, -1, np.int64)
    return OperatorRows(
        start_ns=np.array([start for _, start, _ in intervals], np.int64),
        duration_ns=np.array([end - start for _, start, end in intervals], np.int64),
        name=np.zeros(count, np.int32),
        thread=np.array([thread for thread, _, _ in intervals], np.int32),
        external_id=np.arange(count, dtype=np.int64),
        sequence=unknown,
        forward_thread=unknown,
        arguments=np.zeros(count, np.int32),
        collective=np.full(count, -1, np.int32),
    )


OVERLAPPING = st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12))


@given(
    st.lists(OVERLAPPING, max_size=40),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 45)), max_size=10),
    st.sampled_from([1, 7, 1 << 16]),
)
@settings(deadline=None, max_examples=100)
def test_of_overlapping_operators_the_last_one_still_open_is_around(found, points, block):
    intervals = [(thread, start, start + length) for thread, start, length in found]
    order = sorted(range(len(found)), key=lambda i: (*intervals[i][:2], -intervals[i][2], i))

    def last_open(candidates, thread, moment):
        still = [
            i
            for i in candidates
            if intervals[i][0] == thread and (intervals[i][2] > moment or intervals[i][1] == moment)
        ]
        return still[-1] if still else NONE

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joins, "_BLOCK", block)
        parent, around = enclosing(
            operators(intervals),
            np.array([thread for thread, _ in points], np.int32),
            np.array([moment for _, moment in points], np.int64),
        )
    for place, row in enumerate(order):
        assert parent[row] == last_open(order[:place], *intervals[row][:2])
    for index, (thread, moment) in enumerate(points):
        begun = [i for i in order if intervals[i][1] <= moment]
        assert around[index] == last_open(begun, thread, moment)
