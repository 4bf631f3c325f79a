"""The time of a step, and what it consists of."""

from __future__ import annotations

import pytest

from gemmetry.sweeps.collectives import IDLE
from gemmetry.sweeps.points import StepTime, analyse_sweep, summarize_point
from gemmetry.sweeps.ranks import StepFacts


def test_the_parts_add_up_and_name_the_slowed_compute(tmp_path, sweeps):
    made = sweeps.MadePoint(noise=0.002, slowdown={sweeps.UP.kernel: 1.3})
    (found,) = analyse_sweep(sweeps.write_sweep(tmp_path, [made])).points
    summary = found.summary
    assert summary.step_ms.n == 3
    parts = ("compute", "slowed_compute", "exposed_comm", "exposed_copy", "idle")
    assert sum(getattr(summary, f"{part}_ms") for part in parts) == pytest.approx(
        summary.step_ms.median, rel=1e-12
    )
    # 6 layers, in each of which UP takes 100 us and next to the all-gather 30 us more.
    assert summary.slowed_compute_ms == pytest.approx(6 * 0.030, rel=0.05)
    assert summary.compute_ms == pytest.approx(6 * (2 * 0.190 + 0.020), rel=0.02)
    # 260 us of all-gather next to 220 us of GEMMs and the gap between them.
    assert summary.exposed_comm_ms == pytest.approx(6 * 0.040, rel=0.1)


@pytest.mark.parametrize("late", [[20_000_000, 0, 0, 0, 0, 0], [0, *[4_000_000] * 5]])
@pytest.mark.parametrize("longest", range(4))
def test_a_late_host_is_idle_time_whichever_window_is_the_longest(tmp_path, sweeps, longest, late):
    """In the table as in the verdict on the rank, and if its first work of a step is late, too."""
    late_ns = {rank: [5_000 * (rank != longest), 0, 0, 0, 0, 0] for rank in range(4)}
    late_ns[2] = [sum(both) for both in zip(late_ns[2], late, strict=True)]
    made = sweeps.MadePoint(ranks=4, noise=0, late_ns=late_ns)
    (found,) = analyse_sweep(sweeps.write_sweep(tmp_path, [made])).points
    rank, summary = found.stragglers[2], found.summary
    assert (rank.is_straggler, rank.lost_in) == (True, IDLE)
    assert rank.lost_us == pytest.approx(20_000, rel=0.01)
    assert summary.idle_ms == pytest.approx(20, rel=0.01)
    assert summary.exposed_comm_ms < 0.5
    assert {step.awaited_rank for step in found.steps} == {2}
    if not late[0]:
        assert {step.rank for step in found.steps} == {longest}
    parts = ("compute", "slowed_compute", "exposed_comm", "exposed_copy", "idle")
    assert sum(getattr(summary, f"{part}_ms") for part in parts) == pytest.approx(
        summary.step_ms.median, rel=1e-12
    )


def test_an_interval_needs_six_steps():
    def step(number, window):
        facts = StepFacts(number=number, start_ns=0, end_ns=window, compute_ns=window,
                          exposed_comm_ns=0, exposed_copy_ns=0, idle_ns=0)  # fmt: skip
        return StepTime(facts, number % 2, facts, number % 2, 0)

    few = summarize_point([step(i, 10**6 * (10 + i)) for i in range(5)])
    assert (few.step_ms.median, few.step_ms.ci_low, few.step_ms.ci_high) == (12, None, None)
    many = summarize_point([step(i, 10**6 * (10 + i)) for i in range(6)])
    assert (many.step_ms.median, many.step_ms.ci_low, many.step_ms.ci_high) == (12.5, 10, 15)
    assert many.compute_ms == 12.5
    assert summarize_point([]) is None
