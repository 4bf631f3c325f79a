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


def test_clear_removes_what_reading_kept_and_what_others_made_in_a_folder(
    cli, trace, monkeypatch, tmp_path
):
    cli("trace", "summary", str(trace), "--no-cache", status=0)
    assert caches_of(trace) == []
    cli("trace", "summary", str(trace), status=0)
    assert len(caches_of(trace)) == 1
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another user"))
    assert cli("cache", "clear").stdout.startswith("removed 0 caches")
    assert cli("cache", "clear", str(trace.parent)).stdout.startswith("removed 1 cache, ")
    assert list(trace.parent.iterdir()) == [trace]


def test_clear_removes_what_was_compiled(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = tmp_path / "gemmetry/compiled/triton/cache/hash"
    place.mkdir(parents=True)
    (place / "kernel.cubin").write_bytes(b"x" * 3_000_000)
    (tmp_path / "gemmetry/compiled/link").symlink_to(RANK0)
    assert cli("cache", "clear").stdout == "removed 2 caches, 3.0 MB\n"
    assert list((tmp_path / "gemmetry/compiled").iterdir()) == [] and RANK0.exists()


def test_a_list_of_caches_that_names_other_files_removes_none(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    (tmp_path / f"link{CACHE_SUFFIX}").symlink_to("/etc/passwd")
    ledger = tmp_path / "user/gemmetry/traces/beside.txt"
    ledger.parent.mkdir(parents=True)
    ledger.write_text("/etc/passwd\n/dev/zero\n/proc/self/mem\n\n" + "x" * 5000 + "\n")
    assert cli("cache", "clear", tmp_path, status=0).stdout == "removed 0 caches, 0.0 MB\n"
    ledger.write_bytes(b"\xff\xfe\x00")
    cli("cache", "clear", status=0)
