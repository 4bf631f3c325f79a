from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.traces.collectives.matching import match
from gemmetry.traces.jobs import group_jobs

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1), count=st.integers(16, 50),
    begins=st.lists(st.integers(0, 3), min_size=2, max_size=6), kinds=st.integers(1, 4),
)  # fmt: skip
def test_known_skews_come_back(ranks, seed, count, begins, kinds):
    """Every rank arrives at random; all end within 3 us of each other. Recordings begin up to
    three collectives late. What comes out is computed here from the truth, not from kernels."""
    world, first = len(begins), max(begins)
    ops = [OPS[k] for k in np.random.default_rng(seed).integers(0, kinds, count)]
    arrival, ends, traces = ranks(
        seed, count, world, shifts=(0,) * world, begins=begins,
        of=lambda i, r: {"op": ops[i], "elements": 1000 + i % 3},
    )  # fmt: skip
    (job,) = group_jobs(traces)
    found = match(job)
    assert len(found.matched) == count - first
    for whole, starts, stops in zip(found.matched, arrival[first:], ends[first:], strict=True):
        assert whole.skews_ns() == (int(np.ptp(starts)), int(np.ptp(stops)))
        assert whole.last_rank() == int(np.argmax(starts))
        assert whole.waits_ns() == {r: int(starts.max() - starts[r]) for r in range(world)}
        assert whole.latency_ns == int((stops - starts).min())
    assert found.unmatched == {r: first - begin for r, begin in enumerate(begins)}
    assert found.mismatches == ()
