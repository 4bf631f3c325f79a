"""Stragglers are named with the kernel; planted ones are in ``made_sweeps.txt``."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.sweeps.collectives import Lateness, delays_since, lower_bound, matched_job, stragglers
from gemmetry.sweeps.ranks import KernelTimes, StepFacts

STEP_NS = 10_000_000


@pytest.fixture
def ranks_of(facts, launch):
    """Facts of ranks with one collective per step; arguments are (ranks, steps) in µs."""

    def make(late, kernels=None, idle=None, compute=None, name="gemm"):
        made = []
        for rank, row in enumerate(late):
            launches, steps = [], []
            for step, delay in enumerate(row):
                begin = step * STEP_NS
                launches.append(
                    launch(start=begin + 1_000_000 + delay * 1000,
                           duration=8_000_000 - delay * 1000, ranks=len(late),
                           row=step, sequence=step, step=step)
                )  # fmt: skip
                steps.append(
                    StepFacts(number=step, start_ns=begin, end_ns=begin + STEP_NS,
                              compute_ns=_at(compute, rank, step), exposed_comm_ns=0,
                              exposed_copy_ns=0, idle_ns=_at(idle, rank, step))
                )  # fmt: skip
            sums = np.array([[_at(kernels, rank, step)] for step in range(len(row))], np.int64)
            made.append(
                facts(*launches, rank=rank, world_size=len(late), steps=tuple(steps),
                      kernel_times=KernelTimes((name.format(rank),), sums))
            )  # fmt: skip
        return made

    return make


def _at(table, rank, step):
    return 0 if table is None else int(table[rank][step] * 1000)


def test_verdicts(case, ranks_of):
    """Delays, kernels, idle and busy times are chosen step by step."""
    found = []
    for _, _, given in case.calls():
        ranks = ranks_of(**given)
        found += [(f"rank {one.rank}", one.record())
                  for one in stragglers(ranks, matched_job(ranks))]  # fmt: skip
    case.check(found)


def test_delays_since():
    """The last one is shown as a whole, but not up to the last step."""
    delays = [([0, 0, 10, 11, 10, 10], 2), ([10, 11, 10, 10], 0), ([10, 11, 10, 0], None),
              ([10], None), ([10, 10.1, 10, 10.2, 10, 10.1, 4], None)]  # fmt: skip
    for values, since in delays:
        assert delays_since(np.array(values, np.float64), 2, 1.0) == since


def test_random_delays_rarely_name_a_rank():
    """Ranks that take turns at random, with delays of very different lengths: at most the 5 % of
    all intervals together."""
    draw = np.random.default_rng(7)
    named = 0
    for trial in range(200):
        count, steps = 2 + trial % 3, 3 + trial % 5
        delays = np.zeros((count, steps))
        for _ in range(5):
            last = draw.integers(count, size=steps)
            delays[last, np.arange(steps)] += draw.lognormal(sigma=1.0, size=steps)
        found = Lateness(tuple(range(count)), tuple(range(steps)), delays, 1.0)
        named += any(
            delays_since(found.excess(rank), count, 0.0) is not None for rank in found.ranks
        )
    assert named <= 10


def test_lower_bound():
    """Student's t of 3 degrees at 95 % one-sided is 2.353."""
    values = np.array([1.0, 2.0, 3.0, 4.0])
    expected = 2.5 - 2.3534 * np.std(values, ddof=1) / 2
    assert lower_bound(values, 1) == pytest.approx(expected, rel=1e-4)
    assert lower_bound(values[:1], 1) == -np.inf
