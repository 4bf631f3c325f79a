"""Sets of time compared with sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.traces.joins import covered, subtract, union, within

events = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=12)


def columns(found):
    return (
        np.array([start for start, _ in found], np.int64),
        np.array([length for _, length in found], np.int64),
    )


def moments(found):
    return {moment for start, length in found for moment in range(start, start + length)}


def recorded(intervals):
    """The set's moments; that it is sorted, and neither empty nor touching anywhere."""
    edges = np.column_stack([intervals.start, intervals.end]).reshape(-1).tolist()
    assert edges == sorted(set(edges))
    return moments(
        zip(intervals.start.tolist(), (intervals.end - intervals.start).tolist(), strict=True)
    )


@settings(max_examples=200)
@given(events, events, st.integers(-5, 50), st.integers(-5, 50))
def test_algebra_of_sets(left, right, start, end):
    one, other = union(*columns(left)), union(*columns(right))
    assert recorded(one) == moments(left)
    assert one.length == len(moments(left))
    both = covered(one.start, one.end - one.start, other)
    assert both.sum() == len(moments(left) & moments(right))
    assert recorded(subtract(one, other)) == moments(left) - moments(right)
    assert recorded(within(one, start, end)) == moments(left) & set(range(start, end))
    share = covered(*columns(left), other)
    assert share.tolist() == [len(moments([event]) & moments(right)) for event in left]
