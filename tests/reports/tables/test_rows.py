from __future__ import annotations

import io
import json
import zipfile

import polars
import pytest

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.reports.tables.rows import SUFFIXES, rows_document, write_rows

ROWS = [
    {"name": "a|b", "ok": True, "many": [1, 2], "none": None, "parts": {"k": 1}, "x": 1.5},
    {"name": "<i>", "ok": False, "many": [], "none": "=1+1", "parts": {}, "x": 2},
]


def test_texts_are_escaped_and_no_formula_gets_in(tmp_path):
    for suffix, expected in (
        ("md", r"a\|b"),
        ("html", "&lt;i&gt;"),
        ("csv", "a|b,yes,1; 2,,k=1,1.5"),
        ("csv", "'=1+1"),
    ):
        path = tmp_path / f"t.{suffix}"
        write_rows("things", ROWS, path)
        assert expected in path.read_text()


def test_frames(tmp_path):
    write_rows("things", ROWS, tmp_path / "t.parquet")
    frame = polars.read_parquet(tmp_path / "t.parquet")
    assert frame["ok"].to_list() == [True, False]
    assert frame["many"].to_list() == ["1; 2", ""]
    write_rows("things", ROWS, tmp_path / "t.xlsx")
    book = zipfile.ZipFile(io.BytesIO((tmp_path / "t.xlsx").read_bytes()))
    assert b"<f>" not in book.read("xl/worksheets/sheet1.xml")
    assert b"=1+1" in book.read("xl/sharedStrings.xml")


def test_an_empty_table_has_its_header_in_every_format(tmp_path):
    for suffix in SUFFIXES:
        write_rows("things", [], tmp_path / f"t{suffix}", columns=["one|", "two"])
    assert (tmp_path / "t.csv").read_text() == "one|,two\n"
    assert (tmp_path / "t.md").read_text() == "| one\\| | two |\n| --- | --- |\n"
    assert "<tr><th>one|</th><th>two</th></tr>" in (tmp_path / "t.html").read_text()
    assert json.loads((tmp_path / "t.json").read_text())["things"] == []
    frame = polars.read_parquet(tmp_path / "t.parquet")
    assert (frame.columns, len(frame)) == (["one|", "two"], 0)
    book = zipfile.ZipFile(tmp_path / "t.xlsx")
    assert b"one|" in book.read("xl/sharedStrings.xml")


def test_a_document_of_ones_own(tmp_path):
    write_rows("things", ROWS, tmp_path / "t.json", document={"a": 1})
    assert (tmp_path / "t.json").read_text() == '{\n "a": 1\n}\n'
    assert rows_document("things", ROWS)["things"] == ROWS


def test_errors(tmp_path):
    with pytest.raises(RequestError, match="suffix"):
        write_rows("things", ROWS, tmp_path / "t.pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        write_rows("things", ROWS, tmp_path / "file" / "t.csv")
