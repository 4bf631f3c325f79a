"""Analyses that were written before."""

from __future__ import annotations

import json
import os

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.comparison import fresh_document, read_document
from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.rows import sweep_result


@pytest.fixture
def analysed(tmp_path, sweeps):
    """A sweep with its analysis.json, and the path of that."""
    folder = sweeps.write_sweep(tmp_path / "sweep", [sweeps.MadePoint(layers=1, steps=1)])
    path = folder / "analysis" / "analysis.json"
    path.parent.mkdir()
    path.write_text(json.dumps(sweep_result(analyse_sweep(folder)).document()))
    return folder, path


def test_a_document_that_covers_the_sweep_is_used_also_when_the_traces_are_gone(analysed):
    folder, path = analysed
    assert fresh_document(folder) == fresh_document(path.parent) == read_document(path)
    for trace in folder.rglob("*.json.gz"):
        trace.unlink()
    assert fresh_document(folder) == read_document(path)


def _newer_trace(folder, path, sweeps):
    later = path.stat().st_mtime_ns + 10**9
    os.utime(next(folder.rglob("*.json.gz")), ns=(later, later))


def _another_point(folder, path, sweeps):
    sweeps.write_sweep(folder, [sweeps.MadePoint(channels=16, layers=1, steps=1)])
    for trace in folder.rglob("*.json.gz"):
        os.utime(trace, ns=(0, 0))


def _some_ranks(folder, path, sweeps):
    document = json.loads(path.read_text())
    document["points"][0]["ranks"] = [0]
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("change", [_newer_trace, _another_point, _some_ranks])
def test_a_document_of_other_traces_is_stale(analysed, sweeps, change):
    change(*analysed, sweeps)
    assert fresh_document(analysed[0]) is None


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"schema_version": 99}'])
def test_a_damaged_document_is_refused_by_name_and_else_ignored(analysed, content):
    folder, path = analysed
    path.write_text(content)
    assert fresh_document(folder) is None
    with pytest.raises(RequestError, match=r"analysis\.json") as refused:
        read_document(path)
    assert "gemmetry sweep analyze" in refused.value.hint


def test_a_sweep_without_an_analysis_has_none(tmp_path, sweeps):
    assert fresh_document(sweeps.write_sweep(tmp_path, [sweeps.MadePoint(layers=1)])) is None
