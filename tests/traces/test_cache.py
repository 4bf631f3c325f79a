from __future__ import annotations

import dataclasses
import gzip
import io
import os
import random
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from gemmetry.formats.events import TraceRows
from gemmetry.formats.kineto import read_kineto
from gemmetry.traces import reading as cache
from gemmetry.traces.reading import CACHE_SUFFIX, cache_folder, cache_key, clear_cache, load, save

pytestmark = pytest.mark.usefixtures("own_folder")
SAMPLE = Path(__file__).parents[1] / "data" / "traces" / "h200_fsdp_rank1of4_part.pt.trace.json.gz"


@pytest.fixture
def rows() -> TraceRows:
    found = read_kineto(io.BytesIO(gzip.decompress(SAMPLE.read_bytes())))
    assert found is not None
    return found


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "traces" / "trace.json.gz"
    path.parent.mkdir()
    path.write_bytes(SAMPLE.read_bytes())
    return path


def assert_equal(left: TraceRows, right: TraceRows) -> None:
    for column in dataclasses.fields(TraceRows):
        a, b = getattr(left, column.name), getattr(right, column.name)
        if not dataclasses.is_dataclass(a):
            assert a == b, column.name
            continue
        for inner in dataclasses.fields(a):
            x, y = getattr(a, inner.name), getattr(b, inner.name)
            assert (x.dtype, x.shape) == (y.dtype, y.shape), inner.name
            assert np.array_equal(x, y), inner.name


def test_what_was_saved_is_loaded_by_its_user_alone(trace, rows):
    place = trace.with_name(trace.name + CACHE_SUFFIX)
    key = cache_key([trace])
    assert load(trace, key) is None
    for saved in (rows, read_kineto(io.BytesIO(b'{"traceEvents": []}'))):
        assert save(trace, key, saved) == place
        assert_equal(load(trace, key), saved)
    assert place.stat().st_mode & 0o777 == 0o600
    assert sorted(trace.parent.iterdir()) == [trace, place]


def test_the_key_knows_size_time_beginning_end_and_version(trace, monkeypatch):
    keys = [cache_key([trace])]
    content = bytearray(SAMPLE.read_bytes())
    status = trace.stat()

    def write(later: int = 0) -> None:
        trace.write_bytes(content)
        os.utime(trace, ns=(status.st_atime_ns, status.st_mtime_ns + later))
        keys.append(cache_key([trace]))

    for place in (5, len(content) - 1):
        content[place] ^= 1
        write()
    write(later=1)
    content += b"x"
    write()
    monkeypatch.setattr(cache, "READER_VERSION", cache.READER_VERSION + 1)
    keys += [cache_key([trace]), cache_key([trace, SAMPLE])]
    assert len(set(keys)) == 7
    assert cache_key([trace.with_name("none")]) is None


def test_damage_anywhere_is_noticed(trace, rows):
    place = save(trace, "key", rows)
    good = place.read_bytes()
    draw = random.Random(3)
    spots = [0, 14, 20, 25, 40, len(good) // 2, len(good) - 100]
    noticed = 0
    for spot in spots + [draw.randrange(len(good)) for _ in range(60)]:
        bad = bytearray(good)
        bad[spot] ^= 1 << draw.randrange(8)
        place.write_bytes(bad)
        found = load(trace, "key")
        if found is None:
            noticed += 1
        else:
            # Only the zeros between columns have no meaning.
            assert_equal(found, rows)
    assert noticed > 50
    for length in (0, 10, 30, 500, len(good) - 200):
        place.write_bytes(good[:length])
        assert load(trace, "key") is None


def test_a_folder_that_cannot_be_written_to(trace, rows, monkeypatch):
    def refuse(path: Path, *args: int) -> int:
        if Path(path).parent == trace.parent and len(args) > 1:
            raise PermissionError("read-only")
        return original(path, *args)

    original = os.open
    monkeypatch.setattr(os, "open", refuse)
    place = save(trace, "key", rows)
    assert place.parent == cache_folder()
    assert_equal(load(trace, "key"), rows)
    assert list(trace.parent.iterdir()) == [trace]


@pytest.mark.parametrize(("place", "function"), [(os, "open"), (Path, "replace")])
def test_a_write_that_fails_leaves_nothing_behind(trace, rows, monkeypatch, place, function):
    monkeypatch.setattr(place, function, Mock(side_effect=OSError("disk full")))
    assert save(trace, "key", rows) is None
    monkeypatch.undo()
    assert list(trace.parent.iterdir()) == [trace]


@pytest.mark.parametrize("written", [0, 20, 20_000])
def test_a_process_killed_while_writing_leaves_no_cache_but_one_to_clear(trace, rows, written):
    """SIGKILL leaves no time to clean up; only what was flushed is there."""
    whole = save(trace, "key", rows)
    content = whole.read_bytes()
    whole.unlink()
    trace.with_name(f".tmpabcd{CACHE_SUFFIX}").write_bytes(content[:written])
    assert load(trace, "key") is None
    assert clear_cache() == (1, written)
    assert list(trace.parent.iterdir()) == [trace]


@pytest.mark.parametrize(
    "change",
    [
        lambda gpu: {"name": gpu.name + 10**6},
        lambda gpu: {"collective": gpu.collective + 10**6},
        lambda gpu: {"duration_ns": -gpu.duration_ns - 1},
        lambda gpu: {"duration_ns": gpu.duration_ns + 2**60},
        lambda gpu: {"name": gpu.name - 10**6},
        lambda gpu: {"start_ns": gpu.start_ns[:-1]},
        lambda gpu: {"start_ns": gpu.start_ns.astype(np.float64)},
        lambda gpu: {"grid": gpu.grid[:, :2]},
    ],
)
def test_a_forged_cache_is_rejected(trace, rows, change):
    gpu = dataclasses.replace(rows.gpu, **change(rows.gpu))
    save(trace, "key", dataclasses.replace(rows, gpu=gpu))
    assert load(trace, "key") is None


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_a_file_is_a_cache(trace, make):
    make(trace.with_name(trace.name + CACHE_SUFFIX))
    assert load(trace, "key") is None
    assert clear_cache([trace.parent]) == (0, 0)


def test_a_user_without_the_variable_or_a_home(trace, rows, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "gemmetry" / "traces"
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("no home directory")))
    assert save(trace, "key", rows) == trace.with_name(trace.name + CACHE_SUFFIX)
    assert clear_cache([trace])[0] == 1


def test_clearing_removes_caches_and_nothing_else(tmp_path, trace, rows, monkeypatch):
    others = save(trace, "key", rows)
    foreign = trace.with_name(f"notes{CACHE_SUFFIX}")
    foreign.write_text("mine")
    own = cache_folder() / f"abc{CACHE_SUFFIX}"
    own.write_bytes(others.read_bytes())
    size = others.stat().st_size
    assert clear_cache() == (2, 2 * size)
    assert not others.exists() and not own.exists()
    assert clear_cache() == (0, 0)
    save(trace, "key", rows)
    # Created by another user: this user's list does not name it.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert clear_cache() == (0, 0)
    for place in (trace.parent, trace):
        save(trace, "key", rows)
        assert clear_cache([place]) == (1, size)
    assert sorted(trace.parent.iterdir()) == [foreign, trace]
    assert foreign.read_text() == "mine"
