"""Sweeps of which only workbooks are left, as documents."""

from __future__ import annotations

import pytest

from gemmetry.documents.sweep_files import workbook_document
from gemmetry.documents.sweep_workbooks import find_workbooks, workbook_sweep
from gemmetry.sweeps.api import analyze
from gemmetry.sweeps.points import PointSelection
from gemmetry.sweeps.rows import sweep_result


@pytest.fixture(scope="module")
def document(tmp_path_factory, made_sweep):
    place = tmp_path_factory.mktemp("left")
    analyze(made_sweep, analysis_dir=str(place / "tracelens_analysis"), workbooks=True).write(
        ["collectives"]
    )
    return workbook_document(workbook_sweep(find_workbooks(place), PointSelection()), "left")


def test_what_workbooks_show_agrees_with_the_traces(document, analysis, products):
    traced = sweep_result(analysis).document()
    keys = ("threads", "channels", "axes", "repeat", "outcome")
    assert [[one[name] for name in keys] for one in document["points"]] == [
        [one[name] for name in keys] for one in traced["points"]
    ]
    kinds = ("threads", "channels", "kernel", "m", "n", "k", "dtype", "count")
    assert sorted([one[name] for name in kinds] for one in document["pooled_gemms"]) == sorted(
        [one[name] for name in kinds] for one in traced["pooled_gemms"]
    )
    names = ("op", "dtype", "bytes", "group_size", "count")
    for ours, theirs in zip(document["collectives"], traced["collectives"], strict=True):
        assert [ours[name] for name in names] == [theirs[name] for name in names]
        assert ours["latency_us"] == pytest.approx(theirs["latency_us"], abs=1)


def test_the_whole_trace_is_that_of_the_slowest_rank(document, products):
    for one, point in zip(document["points"], products.points, strict=True):
        assert one["step_ms"]["median"] is None
        if not point.timelines:
            assert one["whole_trace"] is None
            continue
        longest = max(rank["total_time"][0] for rank in point.timelines.values())
        whole = one["whole_trace"]
        assert whole["window_ms"] == pytest.approx(longest)
        parts = sum(ms for part, ms in whole.items() if ms is not None and part != "window_ms")
        assert parts == pytest.approx(longest)
