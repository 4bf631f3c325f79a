"""Collectives of a point by operation and size."""

from __future__ import annotations

import pytest

from gemmetry.analysis.sweeps.analysis import analyse_sweep
from gemmetry.analysis.sweeps.points.collectives import communication_trace, point_collectives
from gemmetry.traces.collectives.jobs import analyse_jobs


@pytest.fixture
def facts_of(tmp_path, sweeps):
    def make(point):
        (found,) = analyse_sweep(sweeps.write_sweep(tmp_path, [point])).points
        return [rank.facts for rank in found.ranks]

    return make


def test_latency_leaves_out_the_wait_for_a_late_rank(facts_of, sweeps):
    (found,) = point_collectives(facts_of(sweeps.MadePoint(delay_ns={1: 300_000})))
    assert (found.op, found.bytes, found.group_size, found.count) == ("all_gather", 2 << 24, 2, 18)
    assert found.latency_us == pytest.approx(260, abs=1)
    assert found.duration_us > 300
    # Half of the 32 MiB crosses the bus of each of two ranks (nccl-tests).
    assert found.busbw_gbps == pytest.approx((2 << 24) / 2 / 260e-6 / 1e9, rel=0.01)
    assert found.is_complete


def test_a_lone_rank_has_no_latency(facts_of, sweeps):
    (found,) = point_collectives(facts_of(sweeps.MadePoint(missing=(1,))))
    assert (found.latency_us, found.busbw_gbps, found.is_complete) == (None, None, False)
    assert found.duration_us == pytest.approx(260, abs=1)


def test_two_traces_of_one_rank_count_once(facts_of, sweeps):
    facts = facts_of(sweeps.MadePoint())
    assert point_collectives([*facts, facts[0]]) == point_collectives(facts)


def test_the_trace_of_a_rank_is_matched_like_one_from_a_file(facts_of, sweeps):
    (job,) = analyse_jobs(map(communication_trace, facts_of(sweeps.MadePoint())))
    assert len(job.matching.matched) == 18
