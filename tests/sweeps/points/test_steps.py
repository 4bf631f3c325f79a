"""The time of a step, and what it consists of."""

from __future__ import annotations

import pytest

from gemmetry.sweeps.collectives import IDLE
from gemmetry.sweeps.points import analyse_sweep


@pytest.mark.parametrize("late", [[20_000_000, 0, 0, 0, 0, 0], [0, *[4_000_000] * 5]])
@pytest.mark.parametrize("longest", range(4))
def test_a_late_host_is_idle_time_whichever_window_is_the_longest(tmp_path, sweeps, longest, late):
    """The table and the verdict on the rank agree, also if its first work of a step is late."""
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
