from __future__ import annotations

import sys

import pytest

from gemmetry.dispatches.results import Results
from gemmetry.domain.errors import Outcome, RequestError


@pytest.fixture
def results(result_set):
    return Results(result_set)


def test_results_are_a_sequence_of_records(results, result_set):
    assert len(results) == len(result_set.records)
    assert list(results) == list(result_set.records)
    assert results[0] is result_set.records[0]
    assert results[1:3] == result_set.records[1:3]
    assert results.records is result_set.records


def test_failures_are_all_that_is_not_ok(results):
    assert len(results.failures) == 10
    assert all(r.outcome is not Outcome.OK and r.reason for r in results.failures)
    assert repr(results) == "<Results 'demo <script>alert(1)</script>': 162 dispatches, 152 ok>"


def test_best_is_the_fastest_of_each_operation(results):
    best = results.best()
    assert len(best) == len({r.operation for r in results if r.measurement is not None})
    for record in best:
        rivals = [r for r in results if r.operation == record.operation and r.measurement]
        assert record.measurement.median_ns == min(r.measurement.median_ns for r in rivals)


def test_samples_are_those_of_the_record(results):
    assert len(results.samples(results[0])) == 60
    assert results.samples(results.failures[0]) == []


def test_pandas_frame(results):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = results.to_pandas()
    assert len(frame) == len(results)
    assert frame["gflops"].notna().sum() == 152


@pytest.mark.parametrize(("library", "extra"), [("pandas", "pandas"), ("polars", "analysis")])
def test_missing_libraries_name_the_extra(results, monkeypatch, library, extra):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RequestError, match=library) as caught:
        getattr(results, f"to_{library}")()
    assert f"gemmetry[{extra}]" in caught.value.hint


def test_notebook_view_is_escaped_html(results):
    view = results._repr_html_()
    assert view.startswith('<div class="gemmetry-results">')
    assert "<script" not in view


def test_write_picks_the_format(results, tmp_path):
    results.write(str(tmp_path / "out.csv"), columns=["provider"])
    assert (tmp_path / "out.csv").read_text().startswith("note,provider\n,torch\n")


def test_compare_with_itself_shows_nothing(results):
    comparison = results.compare(results)
    assert not comparison.has_regression
    assert comparison.candidates[0].geometric_mean == pytest.approx(1.0)
