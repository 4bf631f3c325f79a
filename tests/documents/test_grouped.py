from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.documents import tracelens as grouped
from gemmetry.documents.tracelens import busy_by_owner, grouped_statistics
from gemmetry.traces.joins import union
from gemmetry.traces.operators.gemms import distinct_rows

GROUPS = 4
pairs = st.lists(st.tuples(st.integers(0, GROUPS - 1), st.integers(0, 10**12)), max_size=30)
intervals = st.lists(
    st.tuples(st.integers(0, GROUPS - 1), st.integers(-(10**6), 10**15), st.integers(0, 10**6)),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(pairs)
def test_statistics_are_those_of_each_group_alone(values):
    group = np.array([g for g, _ in values], np.int64)
    found = grouped_statistics(group, np.array([v for _, v in values], np.int64), GROUPS)
    for place in range(GROUPS):
        own = [v for g, v in values if g == place]
        assert found.count[place] == len(own)
        assert found.sum[place] == sum(own)
        if not own:
            assert math.isnan(found.mean[place]) and math.isnan(found.median[place])
            continue
        assert found.mean[place] == pytest.approx(statistics.fmean(own))
        assert found.median[place] == pytest.approx(statistics.median(own))
        assert (found.min[place], found.max[place]) == (min(own), max(own))
        if len(own) > 1:
            assert found.std[place] == pytest.approx(statistics.stdev(own), rel=1e-9, abs=1e-3)
        else:
            assert math.isnan(found.std[place])


@settings(max_examples=80, deadline=None)
@given(intervals, st.sampled_from([1, 5, 1 << 18]))
def test_busy_time_is_the_union_of_each_owner_alone(values, block):
    owner, start, duration = (np.array([v[i] for v in values], np.int64) for i in range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouped, "_BLOCK", block)
        row = np.arange(len(owner))[::-1]
        found = busy_by_owner(owner, row, start[::-1], duration[::-1], GROUPS)
    for place in range(GROUPS):
        own = owner == place
        assert found[place] == union(start[own], duration[own]).length


def test_busy_time_of_many_owners_that_span_hours_does_not_overflow():
    owner = np.arange(100_000, dtype=np.int64).repeat(2)
    start = np.tile(np.array([0, 3600 * 10**9], np.int64), 100_000)
    row = np.arange(200_000)
    found = busy_by_owner(owner, row, start, np.full(200_000, 7, np.int64), 100_000)
    assert (found == 14).all()


NARROW, WIDE = st.integers(-1, 3), st.sampled_from([-(2**63), -1, 0, 2**31, 2**62, 2**63 - 1])


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.lists(st.tuples(NARROW, NARROW), max_size=30),
        st.lists(st.tuples(WIDE, NARROW, WIDE, WIDE), max_size=30),
    )
)
def test_distinct_rows_are_those_of_numpy(rows):
    table = np.array(rows, np.int64).reshape(len(rows), -1 if rows else 2)
    distinct, which = distinct_rows(*table.T)
    expected, number = np.unique(table, axis=0, return_inverse=True)
    assert distinct.tolist() == expected.tolist()
    assert which.tolist() == number.reshape(-1).tolist()
