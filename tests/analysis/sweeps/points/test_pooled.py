"""GEMMs over all ranks of a point."""

from __future__ import annotations

import pytest

from gemmetry.sweeps.points import analyse_sweep


@pytest.fixture
def pooled(tmp_path, sweeps):
    """The GEMMs of each point of a sweep, by kernel."""

    def make(*points):
        sweeps.write_sweep(tmp_path, points)
        found = analyse_sweep(tmp_path).points
        return [{one.kind.kernel: one for one in point.pooled} for point in found]

    return make


def test_ranks_together_decide_what_each_alone_does_not(pooled, sweeps, tmp_path):
    point = sweeps.MadePoint(ranks=4, steps=1, layers=3, slowdown={sweeps.UP.kernel: 1.2})
    (found,) = pooled(point)
    up = found[sweeps.UP.kernel]
    assert (up.ranks, up.count, up.overlapped_count, up.alone_count) == ((0, 1, 2, 3), 24, 12, 12)
    assert up.verdict == "slower"
    assert up.slowdown == pytest.approx(1.2, rel=0.02)
    assert up.low < 1.2 < up.high
    (one,) = analyse_sweep(tmp_path).points
    of_ranks = [gemm.cause.verdict for rank in one.ranks for gemm in rank.gemms
                if gemm.kind.kernel == sweeps.UP.kernel]  # fmt: skip
    assert of_ranks == ["undecided"] * 4


def test_a_slow_rank_is_no_slowdown(pooled, sweeps):
    """DOWN takes half as long again on rank 1, next to the all-gather and alone."""
    (found,) = pooled(sweeps.MadePoint(rank_factor={1: 1.5}, comm_ns=300_000))
    down = found[sweeps.DOWN.kernel]
    assert down.verdict == "no difference shown"
    assert down.slowdown == pytest.approx(1, abs=0.01)


def test_without_a_control_group_on_any_rank(pooled, sweeps):
    (found,) = pooled(sweeps.MadePoint(has_control=False))
    up = found[sweeps.UP.kernel]
    assert (up.verdict, up.slowdown, up.cost_ms_per_step) == ("no control group", None, None)
    assert "all 36 instances" in up.note


def test_slowdown_by_overlapped_share(tmp_path, sweeps):
    point = sweeps.MadePoint(slowdown={sweeps.UP.kernel: 1.3})
    (found,) = analyse_sweep(sweeps.write_sweep(tmp_path, [point])).points
    by_kernel = {gemm.kind.kernel: gemm for gemm in found.pooled}
    (whole,) = by_kernel[sweeps.UP.kernel].by_share
    assert (whole.low, whole.high, whole.count) == (0.75, 1.0, 36)
    assert whole.slowdown == pytest.approx(1.3, rel=0.01)
    assert sum(one.count for one in by_kernel[sweeps.DOWN.kernel].by_share) == 36
