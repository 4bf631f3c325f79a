"""The benchmark of sweeps."""

from __future__ import annotations

import sweep_analysis as benchmark

from gemmetry.sweeps.api import analyze


def test_a_made_sweep_has_a_trace_for_each_rank(tmp_path):
    folder = benchmark.make_sweep(tmp_path, 6, None)
    found = analyze(folder)
    (point,) = found.analysis.points
    assert [one.facts.rank for one in point.ranks] == list(range(6))
    assert point.world_size == 6
    assert found.problems == []
