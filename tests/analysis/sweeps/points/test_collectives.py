"""Collectives of a point by operation and size."""

from __future__ import annotations

import pytest

from gemmetry.documents.sweep_files import collective_sheets
from gemmetry.sweeps import collectives
from gemmetry.sweeps.collectives import matched_job, point_collectives
from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.rows import sweep_result
from gemmetry.sweeps.tuner import tuned_collectives


@pytest.fixture
def facts_of(tmp_path, sweeps):
    def make(point):
        (found,) = analyse_sweep(sweeps.write_sweep(tmp_path, [point])).points
        return [rank.facts for rank in found.ranks]

    return make


def test_two_traces_of_one_rank_count_once(facts_of, sweeps):
    facts = facts_of(sweeps.MadePoint())
    once, twice = (point_collectives(matched_job(ones)) for ones in (facts, [*facts, facts[0]]))
    assert len(once) == 1
    assert twice == once


def test_the_collectives_of_a_point_are_matched_once(tmp_path, sweeps, monkeypatch):
    """For its tables, its stragglers and a tuner's configuration."""
    matched = []
    whole = collectives.analyse_job
    monkeypatch.setattr(collectives, "analyse_job", lambda job: matched.append(1) or whole(job))
    points = [sweeps.MadePoint(channels=channels) for channels in (4, 8)]
    found = analyse_sweep(sweeps.write_sweep(tmp_path, points))
    assert (
        len(sweep_result(found).document()["collectives"]) == len(tuned_collectives(found)) + 1 == 2
    )
    assert all(collective_sheets(one) for one in found.points)
    assert [len(one.job.matching.matched) for one in found.points] == [18, 18]
    assert len(matched) == 2


def test_a_trace_without_a_number_is_a_job_of_its_own(tmp_path, sweeps):
    place = "torch_profiler/{rank}.pt.trace.json"
    folder = sweeps.write_sweep(tmp_path, [sweeps.MadePoint(ranks=1)], file=place)
    (trace,) = folder.rglob("*.json")
    trace.write_text(trace.read_text().replace('"rank": 0', '"rank": null'))
    (point,) = analyse_sweep(folder).points
    (found,) = point_collectives(point.job)
    assert (point.ranks[0].facts.rank, found.count, found.latency_us) == (None, 18, None)
