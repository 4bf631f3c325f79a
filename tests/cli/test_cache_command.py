from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gemmetry.traces.reading import CACHE_SUFFIX

RANK0 = Path(__file__).parents[1] / "data" / "traces" / "h200_fsdp_rank0of4_part.pt.trace.json.gz"


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """A trace that is large enough to be cached, and a user without caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr("gemmetry.traces.reading.SMALLEST_CACHED_BYTES", 0)
    path = tmp_path / "traces" / RANK0.name
    path.parent.mkdir()
    shutil.copy(RANK0, path)
    return path


def caches_of(trace):
    return [path for path in trace.parent.iterdir() if path.name.endswith(CACHE_SUFFIX)]


def test_clear_removes_what_reading_kept(cli, trace):
    assert cli("trace", "summary", str(trace), "--no-cache").status == 0
    assert caches_of(trace) == []
    assert cli("trace", "summary", str(trace)).status == 0
    assert len(caches_of(trace)) == 1
    ended = cli("cache", "clear")
    assert ended.status == 0
    assert ended.stdout.startswith("removed 1 cache, ")
    assert caches_of(trace) == []
    assert trace.exists()
    assert cli("cache", "clear").stdout.startswith("removed 0 caches")


def test_clear_removes_what_was_compiled(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = tmp_path / "gemmetry/compiled/triton/cache/hash"
    place.mkdir(parents=True)
    (place / "kernel.cubin").write_bytes(b"x" * 3_000_000)
    (tmp_path / "gemmetry/compiled/link").symlink_to(RANK0)
    assert cli("cache", "clear").stdout == "removed 2 caches, 3.0 MB\n"
    assert list((tmp_path / "gemmetry/compiled").iterdir()) == [] and RANK0.exists()
    assert cli("cache", "clear").stdout.startswith("removed 0 caches")


def test_clear_of_a_folder_whose_caches_others_made(cli, trace, monkeypatch, tmp_path):
    cli("trace", "summary", str(trace))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another user"))
    assert cli("cache", "clear").stdout.startswith("removed 0")
    assert cli("cache", "clear", str(trace.parent)).stdout.startswith("removed 1 cache,")
    assert caches_of(trace) == []
