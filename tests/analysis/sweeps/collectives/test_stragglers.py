"""Stragglers that are planted are named with the kernel; without one nobody is."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gemmetry.sweeps.collectives import Lateness, delays_since, lower_bound, matched_job, stragglers
from gemmetry.sweeps.points import PointSelection, analyse_sweep
from gemmetry.sweeps.ranks import KernelTimes, StepFacts

ROOT = Path(__file__).parents[4]
FOLDER = Path(os.environ.get("GEMMETRY_TRACES", "") or ROOT.parent / "shared" / "data")

_SPEC = importlib.util.spec_from_file_location("cases", Path(__file__).parents[3] / "cases.py")
cases = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(cases)

CASES = Path(__file__).with_name("stragglers.txt")
STEP_NS = 10_000_000


@pytest.fixture
def found(sweeps, tmp_path):
    """The ranks of a synthetic point."""

    def analyse(**chosen):
        folder = sweeps.write_sweep(tmp_path / "sweep", [sweeps.MadePoint(**chosen)])
        (point,) = analyse_sweep(folder).points
        return point.stragglers

    return analyse


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_without_a_straggler_nobody_is_named(found, seed):
    ranks = found(ranks=2 + seed % 3, steps=3 + seed, noise=0.02, channels=8 + seed)
    assert not any(one.is_straggler or one.lost_in for one in ranks)
    assert sum(one.last_share for one in ranks) == pytest.approx(1)


@pytest.mark.skipif(not (FOLDER / "sweep_h200x4").is_dir(), reason="needs sweep_h200x4")
def test_ranks_that_take_turns_are_not_named():
    """Each rank is last for most of a step of this recording."""
    selection = PointSelection(threads=[512], channels=[32])
    (found,) = analyse_sweep(FOLDER / "sweep_h200x4", selection=selection, processes=1).points
    assert [one.rank for one in found.stragglers] == [0, 1, 2, 3]
    assert max(one.delayed_us for one in found.stragglers) < 3000
    assert not any(one.is_straggler for one in found.stragglers)


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
                      kernel_times=KernelTimes((name,), sums))
            )  # fmt: skip
        return made

    return make


def _stragglers(ranks):
    return stragglers(ranks, matched_job(ranks))


def _at(table, rank, step):
    return 0 if table is None else int(table[rank][step] * 1000)


@pytest.mark.parametrize("title", cases.read(CASES))
def test_verdicts(title, ranks_of):
    """Of delays, kernels, idle and busy times that are chosen step by step."""
    found = []
    for line in cases.read(CASES)[title][0]:
        ranks = _stragglers(ranks_of(**cases.arguments(line)[2]))
        found += [cases.shown(f"rank {one.rank}", one.record()) for one in ranks]
    cases.check(CASES, title, found)


def test_one_step_that_something_else_delays_hides_no_cause(ranks_of):
    late = [[0] * 7, [1000, 1000, 6000, 1000, 1000, 5000, 1000]]
    _, found = _stragglers(ranks_of(late, kernels=[[0] * 7, [1000] * 7]))
    assert (found.is_straggler, found.lost_in, found.lost_us) == (True, "gemm", 1000)


def test_kernels_with_a_rank_in_their_name_show_nothing(ranks_of):
    """Each rank has one to itself."""
    ranks = ranks_of([[0, 0], [1000, 2600]], kernels=[[5000, 5100], [5000, 5100]])
    named = [
        msgspec.structs.replace(
            one, kernel_times=KernelTimes((f"rank{one.rank}/forward",), one.kernel_times.sums)
        )
        for one in ranks
    ]
    assert not any(one.is_straggler for one in _stragglers(named))


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


def test_a_straggler_planted_on_h200s_is_named_with_its_kernel():
    (point,) = analyse_sweep(ROOT / "tests/data/straggler_h200").points
    first, second = point.stragglers
    assert (first.is_straggler, second.is_straggler, second.last_share) == (False, True, 1)
    assert second.lost_in == "at::cuda::spin_kernel"
    assert second.lost_us == pytest.approx(20_000, rel=0.01)
