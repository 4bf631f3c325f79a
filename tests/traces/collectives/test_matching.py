from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.traces.collectives.matching import describe, match
from gemmetry.traces.collectives.summary import Group
from gemmetry.traces.jobs import group_jobs

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


def matching(*traces):
    (job,) = group_jobs(traces)
    return match(job)


@pytest.fixture
def sequence(collective):
    """Collectives that are 1 ms apart, one for each of the given sizes."""

    def make(*sizes, **recorded):
        return [
            collective(elements=size, start_ns=1_000_000 * i, **recorded)
            for i, size in enumerate(sizes, 1)
        ]

    return make


def test_descriptions(collective):
    assert describe(collective()) == "all_reduce of 1000 Float"
    assert describe(collective(op=None, elements=None, dtype=None)) == "a collective"
    assert describe(collective(sequence=4)) == "all_reduce of 1000 Float (number 4)"


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1), world=st.integers(2, 6), count=st.integers(16, 50),
    edge=st.integers(0, 3),
)  # fmt: skip
def test_known_skews_come_back(rank, collective, seed, world, count, edge):
    """Every rank arrives at random; all end within 3 us of each other. Recordings begin up to
    `edge` collectives late. What comes out is computed here from the truth, not from kernels."""
    rng = np.random.default_rng(seed)
    group = Group("0", tuple(range(world)), world)
    arrival = np.cumsum(rng.integers(2_000_000, 9_000_000, count))[:, None] + rng.integers(
        0, 1_500_000, (count, world)
    )
    ends = arrival.max(axis=1)[:, None] + 200_000 + rng.integers(0, 3000, (count, world))
    ops = [OPS[k] for k in rng.integers(0, len(OPS), count)]
    begins = rng.integers(0, edge + 1, world)
    traces = [
        rank(
            r,
            [
                collective(op=ops[i], elements=int(1000 + i % 3), group=group,
                           start_ns=int(arrival[i, r]), duration_ns=int(ends[i, r] - arrival[i, r]))
                for i in range(int(begins[r]), count)
            ],
        )
        for r in range(world)
    ]  # fmt: skip
    found = matching(*traces)
    common = range(int(begins.max()), count)
    assert len(found.matched) == len(common)
    for whole, i in zip(found.matched, common, strict=True):
        starts = arrival[i]
        assert whole.skews_ns() == (int(np.ptp(starts)), int(np.ptp(ends[i])))
        assert whole.last_rank() == int(np.argmax(starts))
        assert whole.waits_ns() == {r: int(starts.max() - starts[r]) for r in range(world)}
        assert whole.latency_ns == int((ends[i] - starts).min())
    assert found.unmatched == {r: int(begins.max() - begins[r]) for r in range(world)}
    assert found.mismatches == ()
