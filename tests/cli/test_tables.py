from __future__ import annotations

import json

import pytest

from gemmetry.cli.tables import emit, write_rows
from gemmetry.domain.errors import RequestError, StorageError

ROWS = [
    {"name": "a|b", "ok": True, "many": [1, 2], "none": None, "parts": {"k": 1}},
    {"name": "<i>", "ok": False, "many": [], "none": "x", "parts": {}},
]


def test_json_is_as_it_was(capsys):
    emit("things", ROWS, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "things": ROWS}


def test_texts_are_escaped(tmp_path):
    for suffix, expected in (
        ("md", r"a\|b"),
        ("html", "&lt;i&gt;"),
        ("csv", 'a|b,yes,"1, 2",,k=1'),
    ):
        path = tmp_path / f"t.{suffix}"
        write_rows("things", ROWS, path)
        assert expected in path.read_text()


def test_frames(tmp_path):
    polars = pytest.importorskip("polars")
    write_rows("things", ROWS, tmp_path / "t.parquet")
    frame = polars.read_parquet(tmp_path / "t.parquet")
    assert frame["ok"].to_list() == [True, False]
    assert frame["many"].to_list() == ["1, 2", ""]


def test_an_empty_table_is_still_a_table(tmp_path, capsys):
    emit("things", [], as_json=False, outputs=[tmp_path / "t.csv"])
    assert (tmp_path / "t.csv").exists()


def test_errors(tmp_path):
    with pytest.raises(RequestError):
        write_rows("things", ROWS, tmp_path / "t.pdf")
    with pytest.raises(StorageError):
        (tmp_path / "file").write_text("")
        write_rows("things", ROWS, tmp_path / "file" / "t.csv")
