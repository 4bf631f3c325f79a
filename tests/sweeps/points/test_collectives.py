"""Collectives of a point by operation and size."""

from __future__ import annotations

from gemmetry.sweeps.collectives import matched_job, point_collectives
from gemmetry.sweeps.points import analyse_sweep


def test_two_traces_of_one_rank_count_once(tmp_path, sweeps):
    (found,) = analyse_sweep(sweeps.write_sweep(tmp_path, [sweeps.MadePoint(layers=1)])).points
    facts = [rank.facts for rank in found.ranks]
    once, twice = (point_collectives(matched_job(ones)) for ones in (facts, [*facts, facts[0]]))
    assert len(once) == 1
    assert twice == once


def test_a_trace_without_a_number_is_a_job_of_its_own(tmp_path, sweeps):
    place = "torch_profiler/{rank}.pt.trace.json"
    folder = sweeps.write_sweep(tmp_path, [sweeps.MadePoint(ranks=1)], file=place)
    (trace,) = folder.rglob("*.json")
    trace.write_text(trace.read_text().replace('"rank": 0', '"rank": null'))
    (point,) = analyse_sweep(folder).points
    (found,) = point_collectives(point.job)
    assert (point.ranks[0].facts.rank, found.count, found.latency_us) == (None, 18, None)
