"""Statistics and causes of the GEMMs of one rank."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from gemmetry.sweeps.folder import RankFile
from gemmetry.sweeps.gemms import NO_SHAPE, NOT_OVERLAPPED, dose_response, gemm_statistics
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


def with_durations(facts, durations):
    gemms = msgspec.structs.replace(facts.gemms, duration_ns=durations)
    return msgspec.structs.replace(facts, gemms=gemms)


def test_the_slowed_gemm_is_found_and_the_other_is_not(gemms_of, sweeps):
    found = gemms_of(slowdown={sweeps.UP.kernel: 1.3})
    up, down = found[sweeps.UP.kernel], found[sweeps.DOWN.kernel]
    assert (up.count, up.cause.overlapped_count, up.cause.alone_count) == (36, 18, 18)
    assert up.cause.verdict == "slower"
    assert up.cause.is_slowed
    assert up.cause.slowdown == pytest.approx(1.3, rel=0.01)
    assert up.cause.low < 1.3 < up.cause.high
    assert up.cause.slowdown == pytest.approx(
        up.cause.overlapped_median_us / up.cause.alone_median_us
    )
    # 6 instances a step, each 30 us longer.
    assert up.cause.cost_ms_per_step == pytest.approx(0.18, rel=0.05)
    assert down.cause.verdict == "no difference shown"
    assert down.cause.low < 1 < down.cause.high
    assert abs(down.cause.cost_ms_per_step) < 0.01


def test_a_gemm_that_never_overlaps(gemms_of, sweeps):
    cause = gemms_of(is_overlapped=False)[sweeps.UP.kernel].cause
    assert (cause.verdict, cause.overlapped_count, cause.dose) == (NOT_OVERLAPPED, 0, None)
    assert cause.by_collective == ()
    assert cause.cost_ms_per_step == 0


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
        changed = msgspec.structs.replace(facts, communication=communication)
        return with_durations(changed, duration)

    cause = gemms_of(change, slowdown={sweeps.UP.kernel: 1.2})[sweeps.UP.kernel].cause
    found = {one.op: one for one in cause.by_collective}
    assert {op: one.count for op, one in found.items()} == {"all_gather": 9, "reduce_scatter": 9}
    assert found["all_gather"].slowdown == pytest.approx(1.2, rel=0.02)
    assert found["reduce_scatter"].slowdown == pytest.approx(1.8, rel=0.02)
    assert {one.verdict for one in found.values()} == {"slower"}


def test_statistics_agree_with_numpy(gemms_of, sweeps):
    samples = []

    def keep(facts):
        samples.append(facts.gemms.duration_ns[facts.gemms.kind == 1] / 1000)
        return facts

    found = gemms_of(keep, noise=0.1)[sweeps.DOWN.kernel]
    (values,) = samples
    assert found.count == len(values)
    assert found.sum_us == pytest.approx(values.sum())
    assert found.median_us == pytest.approx(np.median(values))
    assert (found.p5_us, found.p95_us) == pytest.approx(tuple(np.quantile(values, [0.05, 0.95])))
    assert found.mad_us == pytest.approx(np.median(abs(values - np.median(values))))
    assert found.cv == pytest.approx(values.std(ddof=1) / values.mean())
    assert found.max_minus_min_us == pytest.approx(values.max() - values.min())


def test_the_effect_of_the_first_step(gemms_of, sweeps):
    def slow_first(facts):
        gemms = facts.gemms
        return with_durations(facts, np.where(gemms.step == 3, 4, 1) * gemms.duration_ns)

    found = gemms_of(slow_first)[sweeps.DOWN.kernel]
    assert found.first_step_ratio == pytest.approx(4, rel=0.02)
    assert found.later_steps_median_us == pytest.approx(90, rel=0.02)


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
