"""Sweeps in Python."""

from __future__ import annotations

import json

import pytest

from gemmetry.sweeps.api import analyze


@pytest.fixture
def folder(tmp_path, sweeps):
    points = [sweeps.MadePoint(channels=channels, layers=2) for channels in (4, 8)]
    return sweeps.write_sweep(tmp_path / "sweep", points)


def test_frames_and_document(folder):
    found = analyze(folder)
    assert found.is_complete
    points, gemms, pooled = map(found.frame, ("points", "gemms", "pooled_gemms"))
    assert points["channels"].to_list() == [4, 8]
    assert points["step_ms"].dtype.is_float()
    assert len(gemms) == 2 * len(pooled) == 2 * 2 * 2
    assert set(gemms["rank"]) == {0, 1}
    assert found.document()["sweep"] == str(folder)


def test_nothing_is_written_before_it_is_requested(folder):
    found = analyze(str(folder), channels=[8])
    assert not (folder / "analysis").exists()
    written = found.write(["variance"]).paths
    assert [path.parent for path in written] == [folder / "analysis"]
    assert not (folder / "analysis" / "analysis.json").exists()
    written = found.write().paths[0]
    assert written == folder / "analysis" / "analysis.json"
    assert json.loads(written.read_text())["points"][0]["channels"] == 8


def test_a_sweep_against_a_damaged_one(folder):
    next(folder.rglob("rank1/*.gz")).write_bytes(b"")
    found = analyze(folder, analysis_dir="mine")
    assert not found.is_complete
    assert found.folder == folder / "mine"
    assert any("rank 1 of 2" in problem for problem in found.problems)


def test_what_is_not_finite_is_null_in_the_file(folder, monkeypatch):
    found = analyze(folder)
    document = found.document() | {"not_a_number": float("nan")}
    monkeypatch.setattr(found, "document", lambda: document)
    written = found.write().paths[0].read_text()
    assert "NaN" not in written
    assert json.loads(written)["not_a_number"] is None
