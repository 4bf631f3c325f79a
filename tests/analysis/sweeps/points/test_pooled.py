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


def test_slowdown_by_overlapped_share(tmp_path, sweeps):
    point = sweeps.MadePoint(slowdown={sweeps.UP.kernel: 1.3})
    (found,) = analyse_sweep(sweeps.write_sweep(tmp_path, [point])).points
    by_kernel = {gemm.kind.kernel: gemm for gemm in found.pooled}
    (whole,) = by_kernel[sweeps.UP.kernel].by_share
    assert (whole.low, whole.high, whole.count) == (0.75, 1.0, 36)
    assert whole.slowdown == pytest.approx(1.3, rel=0.01)
    assert sum(one.count for one in by_kernel[sweeps.DOWN.kernel].by_share) == 36
