from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.traces.collectives.alignment import Matched
from gemmetry.traces.collectives.matching import match
from gemmetry.traces.collectives.summary import Group
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


def test_offsets_of_clocks_are_added(collective):
    group = Group("0", (0, 1, 2, 3), 4)
    times = ((0, 100_000), (30_000, 71_000), (80_000, 23_000), (20_000, 79_000))
    ones = [collective(start_ns=at, duration_ns=lasts, group=group) for at, lasts in times]
    ranks, offsets = Matched(group=group, members=tuple(enumerate(ones))), {1: 60_000, 3: 0}
    assert ranks.skews_ns(offsets) == (90_000, 62_000)
    assert ranks.last_rank(offsets) == 1
    assert ranks.waits_ns(offsets) == {0: 90_000, 1: 0, 2: 10_000, 3: 70_000}
    assert ranks.skews_ns() == (80_000, 4_000)
