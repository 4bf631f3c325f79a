"""Databases modelled on rocprofiler-sdk's ``rocpd_tables.sql``, in both layouts, as no real one
with a licence to copy was found."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmetry.formats.events import MISSING, GpuKind, TraceRows
from gemmetry.formats.rocm.rocprofv3 import is_rocpd, read_rocpd

SCRIPTS = (Path(__file__).parents[2] / "data" / "read" / "rocpd.sql").read_text()
COMMON, INLINE, TRACKS, CATEGORIES = re.split(r"^-- [A-Z]+$", SCRIPTS, flags=re.MULTILINE)[1:]


@pytest.fixture
def database(tmp_path: Path) -> Callable[..., Path]:
    def make(*scripts: str, suffixes: tuple[str, ...] = ("_0000a1",), **environment: str) -> Path:
        path = tmp_path / "results.db"
        with closing(sqlite3.connect(path)) as opened:
            for suffix in suffixes:
                for script in scripts:
                    text = script.format(u=suffix, environment=json.dumps(environment))
                    opened.executescript(text)
            opened.commit()
        return path

    return make


def names(rows: TraceRows, table: str) -> list[str]:
    return [rows.names[i] for i in getattr(rows, table).name]


@pytest.mark.parametrize(
    "scripts",
    [(COMMON, INLINE), (COMMON, TRACKS), (COMMON, TRACKS, CATEGORIES)],
    ids=["inline", "tracks", "tracks with categories"],
)
def test_a_small_database_in_normal_form(database, scripts):
    path = database(*scripts, RANK="3", WORLD_SIZE="8")
    assert is_rocpd(path)
    rows = read_rocpd(path)
    assert rows is not None
    assert (rows.format, rows.events, rows.problems, rows.partial) == ("rocpd", 6, (), False)
    assert names(rows, "gpu") == ["gemm(float*)", "other", "MEMORY_COPY_HOST_TO_DEVICE"]
    assert rows.gpu.start_ns.tolist() == [1000, 2000, 10]
    assert rows.gpu.duration_ns.tolist() == [500, 1, 20]
    assert rows.gpu.grid.tolist() == [[16, 2, 1], [2, 1, 1], [0, 0, 0]]
    assert rows.gpu.block[0].tolist() == [64, 1, 1]
    assert rows.gpu.kind.tolist() == [GpuKind.KERNEL, GpuKind.KERNEL, GpuKind.MEMCPY]
    assert rows.gpu.device.tolist() == [1, 0, 1]
    assert rows.gpu.stream.tolist() == [3, 3, 3]
    assert rows.gpu.bytes.tolist() == [MISSING, MISSING, 256]
    # Kernels and calls share the number of their place in the stack.
    assert rows.gpu.correlation.tolist() == [100, 101, 102]
    assert (names(rows, "calls"), rows.calls.correlation.tolist()) == (["hipLaunchKernel"], [100])
    assert names(rows, "operators") == ["ncclAllReduce"]
    assert names(rows, "annotations") == ["step 3"]
    assert [rows.threads[i] for i in rows.annotations.thread] == ["77/21"]
    assert (rows.rank, rows.world_size, rows.host) == (3, 8, "node-7")
    assert rows.devices == {0: "AMD Instinct MI300X", 1: "AMD Instinct MI300X"}


def test_several_processes_in_one_database(database):
    rows = read_rocpd(database(COMMON, INLINE, suffixes=("", "_b2"), RANK="0"))
    assert rows is not None
    assert len(rows.gpu.start_ns) == 6
    assert rows.rank is None
    # Each is a part: its numbers and threads are its own, and one rank cannot be that of both.
    assert [(part.name, part.rank) for part in rows.parts] == [
        ("process 0", None), ("process 1", None),
    ]  # fmt: skip
    assert rows.gpu.part.tolist() == [0, 0, 0, 1, 1, 1]
    of_calls = [set(part.threads) & set(rows.calls.thread.tolist()) for part in rows.parts]
    assert all(of_calls)
    assert not of_calls[0] & of_calls[1]


def changed(path: Path, *commands: str) -> Path:
    with closing(sqlite3.connect(path)) as opened:
        for command in commands:
            opened.execute(command)
        opened.commit()
    return path


def test_values_that_cannot_be_used_and_a_column_that_is_missing(database):
    table = '"rocpd_kernel_dispatch_0000a1"'
    path = changed(
        database(COMMON, INLINE),
        f"UPDATE {table} SET start = 'x' WHERE id = 1",
        f"UPDATE {table} SET grid_size_x = NULL, kernel_id = 99 WHERE id = 2",
    )
    rows = read_rocpd(path)
    assert rows is not None
    assert names(rows, "gpu")[1:] == ["kernel 99", "MEMORY_COPY_HOST_TO_DEVICE"]
    assert rows.gpu.grid[1].tolist() == [0, 1, 1]
    # Work without a usable time is left out later, as that of every format is.
    assert (rows.gpu.start_ns[0], rows.gpu.duration_ns[0]) == (0, 0)
    assert not rows.partial
    rows = read_rocpd(changed(path, f"ALTER TABLE {table} DROP COLUMN grid_size_x"))
    assert rows is not None
    assert rows.partial
    assert "grid_size_x" in str(rows.problems[0])


def test_other_databases_and_files(tmp_path):
    path = tmp_path / "other.db"
    changed(path, "CREATE TABLE x (y INTEGER)")
    for _ in range(2):
        assert not is_rocpd(path)
        assert read_rocpd(path) is None
        path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)


@given(st.data())
@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_damage_anywhere_raises_nothing(tmp_path, data):
    good = tmp_path / "good.db"
    if not good.exists():
        with closing(sqlite3.connect(good)) as opened:
            for script in (COMMON, INLINE):
                opened.executescript(script.format(u="_a1", environment="{}"))
            opened.commit()
    content = bytearray(good.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.db"
    path.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    rows = read_rocpd(path)
    assert isinstance(is_rocpd(path), bool)
    assert rows is None or (rows.gpu.duration_ns >= 0).all()


def test_a_message_of_the_database_that_is_not_text(database):
    """SQLite's message contains the damaged name as it stands in the file."""
    path = database(COMMON, INLINE, suffixes=("",))
    content = path.read_bytes().replace(b"tablerocpd_string", b"tablerocpd_str\xb0\xb0\xb0")
    path.write_bytes(
        content.replace(b'CREATE TABLE "rocpd_string"', b'CREATE TABLX "rocpd_string"')
    )
    with closing(sqlite3.connect(path)) as opened, pytest.raises(UnicodeDecodeError):
        opened.execute("SELECT name FROM sqlite_master")
    assert not is_rocpd(path)
    assert read_rocpd(path) is None


@pytest.mark.parametrize("index", [2**31, -(2**63), "NULL", "'x'"])
def test_numbers_of_agents_that_no_machine_has_are_counted_instead(database, index):
    command = f'UPDATE "rocpd_info_agent_0000a1" SET type_index = {index}'
    rows = read_rocpd(changed(database(COMMON, INLINE), command))
    assert rows is not None
    assert sorted(rows.devices) == [0, 1]
