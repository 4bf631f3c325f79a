from __future__ import annotations

import io
import zipfile

import fastexcel

from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.results import tables as xlsx
from gemmetry.results.tables import Look, left_out, workbook

COLUMNS = (
    Column("state"), Column("count", ColumnType.INTEGER), Column("busy_share", ColumnType.NUMBER),
    Column("is_ok", ColumnType.BOOLEAN),
)  # fmt: skip
ROWS = [("ok", 1000, 0.25, True), ("bad", None, float("nan"), False), ("", 1, 1e-6, None)]


def _rows(book, sheet):
    return fastexcel.read_excel(book).load_sheet(sheet).to_polars().rows()


def test_values_keep_their_kind():
    book = workbook([Table("a", COLUMNS, ROWS)])
    assert _rows(book, "a") == [
        ("ok", 1000.0, 0.25, True), ("bad", None, None, False), (None, 1.0, 1e-6, None),
    ]  # fmt: skip


def test_lists_are_one_text_and_empty_ones_no_cell():
    table = Table("a", (Column("many", ColumnType.TEXTS),), [(["x", "y"],), ([],)])
    with zipfile.ZipFile(io.BytesIO(workbook([table]))) as archive:
        assert b"x; y" in archive.read("xl/sharedStrings.xml")
        assert b'r="A3"' not in archive.read("xl/worksheets/sheet1.xml")


def test_looks_colour_columns():
    looks = {"state": Look(good="ok", width=50), "count": Look(has_bar=True)}
    with zipfile.ZipFile(io.BytesIO(workbook([Table("a", COLUMNS, ROWS)], looks))) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
    assert 'type="dataBar"' in sheet
    assert '<formula>"ok"</formula>' in sheet
    assert 'width="50.' in sheet


def test_rows_beyond_a_sheet_are_counted(monkeypatch):
    monkeypatch.setattr(xlsx, "MOST_ROWS", 2)
    tables = [Table("a", COLUMNS, ROWS), Table("b", COLUMNS, ROWS[:2])]
    assert left_out(tables) == ["a: rows left out because they do not fit on a sheet: 1"]
    assert len(_rows(workbook(tables), "a")) == 2


def test_a_large_workbook_holds_the_same(monkeypatch):
    tables = [Table("a", COLUMNS, ROWS), Table("b", COLUMNS, ROWS[:1])]
    small = workbook(tables)
    monkeypatch.setattr(xlsx, "MOST_CELLS_IN_MEMORY", 4)
    assert _rows(workbook(tables), "a") == _rows(small, "a")
