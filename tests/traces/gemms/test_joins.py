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

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), min_size=1, max_size=25)
"""Of a correlation number and a start."""


def rows(kind, count, **given):
    """Columns of zeros but for those given."""
    empty = concatenate(kind, [])
    zeros = {name: np.zeros((count, *getattr(empty, name).shape[1:]), np.int64)
             for name in kind.__slots__}  # fmt: skip
    return kind(**zeros | {name: np.array(column, np.int64) for name, column in given.items()})


@given(PAIRS, PAIRS)
@settings(max_examples=100)
def test_of_several_calls_with_one_number_the_last_one_begun_before_is_the_launch(calls, kernels):
    def columns(kind, pairs):
        numbers, starts = zip(*pairs, strict=True)
        return rows(kind, len(pairs), correlation=numbers, start_ns=starts)

    whole = TraceRows(
        format="kineto", events=0, base_ns=0, names=("cudaMemcpyAsync",), arguments=(),
        collectives=(), threads=("1/1",), gpu=columns(GpuRows, kernels),
        calls=columns(CallRows, calls), operators=rows(OperatorRows, 0),
        annotations=rows(AnnotationRows, 0),
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


OVERLAPPING = st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12))


@given(
    st.lists(OVERLAPPING, max_size=40),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 45)), max_size=10),
    st.sampled_from([1, 7, 1 << 16]),
)
@settings(max_examples=100)
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
            rows(
                OperatorRows, len(found), thread=[thread for thread, _, _ in found],
                start_ns=[start for _, start, _ in found], duration_ns=[ns for _, _, ns in found],
            ),
            np.array([thread for thread, _ in points], np.int32),
            np.array([moment for _, moment in points], np.int64),
        )  # fmt: skip
    for place, row in enumerate(order):
        assert parent[row] == last_open(order[:place], *intervals[row][:2])
    for index, (thread, moment) in enumerate(points):
        begun = [i for i in order if intervals[i][1] <= moment]
        assert around[index] == last_open(begun, thread, moment)
