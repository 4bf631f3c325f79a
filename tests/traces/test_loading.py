from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.traces.reading import all_failed, read_all

GOOD = '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1.5, "dur": 2}]}'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "a.json").write_text(GOOD)
    (tmp_path / "good" / "b.json").write_text(GOOD)
    (tmp_path / "bad.json").write_text("{}")
    return tmp_path


def test_files_come_in_the_order_given_and_folders_are_searched(folder):
    errors = {}
    paths = [folder / "good" / "b.json", folder / "good"]
    found = [trace.file.name for trace in read_all(paths, errors)]
    assert found == ["b.json", "a.json", "b.json"]
    assert errors == {}


def test_what_cannot_be_read_does_not_stop_the_others(folder):
    errors = {}
    paths = [folder / "missing.json", folder / "bad.json", folder / "good" / "a.json"]
    times = {}
    (only,) = read_all(paths, errors, use_cache=False, timings=times)
    assert only.rows.gpu.start_ns.tolist() == [1500]
    assert list(map(Path, errors)) == paths[:2]
    assert "does not exist" in errors[str(paths[0])].message
    assert "bad.json" in errors[str(paths[1])].message
    assert times["read"] > 0


def test_the_error_of_all_names_all(folder):
    errors = {}
    assert list(read_all([folder / "missing.json", folder / "bad.json"], errors)) == []
    text = all_failed(errors).message
    assert "none of 2 traces" in text
    assert "missing.json" in text
    assert "bad.json" in text
    only = {"x": errors[str(folder / "bad.json")]}
    assert all_failed(only) is only["x"]
    assert all_failed({}).message == "no trace was given"
