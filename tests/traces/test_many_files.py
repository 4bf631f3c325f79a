from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.traces.reading import all_failed, read_all


@pytest.fixture
def folder(tmp_path):
    event = '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1.5, "dur": 2}'
    (tmp_path / "good").mkdir()
    for name in ("a.json", "b.json"):
        (tmp_path / "good" / name).write_text(f'{{"traceEvents": [{event}]}}')
    (tmp_path / "bad.json").write_text("{}")
    return tmp_path


def test_files_come_in_the_order_given_and_folders_are_searched(folder):
    errors = {}
    paths = [folder / "good" / "b.json", folder / "good"]
    found = [trace.file.name for trace in read_all(paths, errors)]
    assert (found, errors) == (["b.json", "a.json", "b.json"], {})


def test_what_cannot_be_read_does_not_stop_the_others(folder):
    errors, times = {}, {}
    bad = [folder / "missing.json", folder / "bad.json"]
    paths = [*bad, folder / "good" / "a.json"]
    (only,) = read_all(paths, errors, use_cache=False, timings=times)
    assert only.rows.gpu.start_ns.tolist() == [1500]
    assert list(map(Path, errors)) == bad
    assert times["read"] > 0
    for path in bad:
        assert path.name in errors[str(path)].message
        assert path.name in all_failed(errors).message
    assert all_failed({"x": errors[str(bad[1])]}) is errors[str(bad[1])]
    assert all_failed({}).message
