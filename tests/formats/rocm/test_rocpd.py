"""Databases of which little or nothing can be read; small ones are in ``test_golden``."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmetry.formats.rocm.rocprofv3 import is_rocpd, read_rocpd

SCRIPTS = (Path(__file__).parents[2] / "data" / "read" / "rocpd.sql").read_text()
COMMON, INLINE, *_ = re.split(r"^-- [A-Z]+$", SCRIPTS, flags=re.MULTILINE)[1:]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The content of a database."""
    path = tmp_path_factory.mktemp("good") / "results.db"
    with closing(sqlite3.connect(path)) as opened:
        opened.executescript((COMMON + INLINE).format(u="", environment="{}"))
    assert read_rocpd(path) is not None
    return path.read_bytes()


def test_other_databases_and_files(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as opened:
        opened.executescript("CREATE TABLE x (y INTEGER)")
    for _ in range(2):
        assert not is_rocpd(path)
        assert read_rocpd(path) is None
        path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)


@given(st.data())
@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_damage_anywhere_raises_nothing(tmp_path, good, data):
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.db"
    path.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    rows = read_rocpd(path)
    assert isinstance(is_rocpd(path), bool)
    assert rows is None or (rows.gpu.duration_ns >= 0).all()


def test_a_message_of_the_database_that_is_not_text(tmp_path, good):
    """SQLite's message contains the damaged name as it stands in the file."""
    path = tmp_path / "damaged.db"
    content = good.replace(b"tablerocpd_string", b"tablerocpd_str\xb0\xb0\xb0")
    path.write_bytes(
        content.replace(b'CREATE TABLE "rocpd_string"', b'CREATE TABLX "rocpd_string"')
    )
    with closing(sqlite3.connect(path)) as opened, pytest.raises(UnicodeDecodeError):
        opened.execute("SELECT name FROM sqlite_master")
    assert not is_rocpd(path)
    assert read_rocpd(path) is None
