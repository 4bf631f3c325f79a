"""Statistics and causes of the GEMMs of one rank."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from gemmetry.sweeps.folder import RankFile
from gemmetry.sweeps.gemms import NO_SHAPE, dose_response, gemm_statistics
from gemmetry.sweeps.ranks import read_facts
from gemmetry.sweeps.rows import GemmKind


@pytest.fixture
def gemms_of(tmp_path, sweeps):
    """The GEMMs of rank 0 of a point, by kernel."""

    def make(change=lambda facts: facts, **chosen):
        path = tmp_path / "rank0.json"
        path.write_text(sweeps.point_traces(sweeps.MadePoint(**chosen))[0])
        facts = change(read_facts(RankFile(path, 0))[1])
        return {one.kind.kernel: one for one in gemm_statistics(facts)}

    return make


def test_a_kernel_without_a_shape_is_not_judged(gemms_of, sweeps):
    def without_shapes(facts):
        kinds = tuple(GemmKind(kernel=kind.kernel, short=kind.short) for kind in facts.gemm_kinds)
        return msgspec.structs.replace(facts, gemm_kinds=kinds)

    cause = gemms_of(without_shapes, slowdown={sweeps.UP.kernel: 1.5})[sweeps.UP.kernel].cause
    assert (cause.verdict, cause.note, cause.slowdown) == ("undecided", NO_SHAPE, None)
    assert cause.dose is None


def test_the_effect_of_each_kind_of_collective(gemms_of, sweeps):
    """Every second all-gather becomes a reduce-scatter, next to which UP takes longer still."""

    def change(facts):
        communication = tuple(
            one if i % 2 else msgspec.structs.replace(
                one, collective=dataclasses.replace(one.collective, op="reduce_scatter")
            )
            for i, one in enumerate(facts.communication)
        )  # fmt: skip
        duration = facts.gemms.duration_ns.copy()
        slow = [row for row, at, _ in facts.gemms.overlapping.tolist() if at % 2 == 0]
        duration[slow] = duration[slow] * 3 // 2
        gemms = msgspec.structs.replace(facts.gemms, duration_ns=duration)
        return msgspec.structs.replace(facts, communication=communication, gemms=gemms)

    cause = gemms_of(change, slowdown={sweeps.UP.kernel: 1.2})[sweeps.UP.kernel].cause
    found = {one.op: one for one in cause.by_collective}
    assert {op: one.count for op, one in found.items()} == {"all_gather": 9, "reduce_scatter": 9}
    assert found["all_gather"].slowdown == pytest.approx(1.2, rel=0.02)
    assert found["reduce_scatter"].slowdown == pytest.approx(1.8, rel=0.02)
    assert {one.verdict for one in found.values()} == {"slower"}


KIND = GemmKind(kernel="k", m=1, n=1, k=1)


def test_short_overlaps_give_no_response():
    duration, overlap = np.full(20, 100.0), np.array([0.0] * 14 + [10.0] * 6)
    assert dose_response(KIND, duration, overlap) is None
    assert dose_response(KIND, duration, 9 * overlap) is not None


def test_slopes_between_almost_equal_shares_are_no_bounds():
    """Durations that rise with shares a billionth apart: e to the slope is no number."""
    share = 0.9 + 1e-9 * np.arange(12)
    duration = 100.0 * 1.1 ** np.arange(12)
    found = dose_response(KIND, duration, share * duration)
    assert (found.full_overlap_slowdown, found.low, found.high) == (None, None, None)
    assert "differ by less than 50%" in found.note
    assert found.highest_share == pytest.approx(0.9)
    alone = np.concatenate([np.full(12, 100.0), duration])
    found = dose_response(KIND, alone, np.concatenate([np.zeros(12), share * duration]))
    assert found is not None
    assert 1 < found.full_overlap_slowdown < 10
    assert found.low < found.full_overlap_slowdown < found.high


def test_a_slope_that_noise_of_almost_equal_shares_makes_is_no_factor():
    """40 instances that overlap almost entirely, whose shares grow with their durations."""
    together = np.linspace(350.0, 700.0, 40)
    duration = np.concatenate([[280.0, 281.0], together])
    share = np.concatenate([[0.0, 0.0], np.linspace(0.9, 1.0, 40)])
    found = dose_response(KIND, duration, share * duration)
    assert (found.full_overlap_slowdown, found.low, found.high) == (None, None, None)
    assert "extrapolated" in found.note
    assert found.highest_share == pytest.approx(1)
