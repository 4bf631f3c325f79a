"""Tables in every format: values keep their kind, and no text becomes markup or a formula."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import zipfile

import fastexcel
import polars
import pytest

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.results import tables as module
from gemmetry.results.emit import FORMATS, write_tables
from gemmetry.results.tables import (
    append_csv,
    csv_text,
    escape_markdown,
    frame,
    left_out,
    markdown_text,
    parquet,
    require,
    workbook,
)

THINGS = Table(
    "things",
    (
        Column("name"), Column("ok", ColumnType.BOOLEAN), Column("many", ColumnType.TEXTS),
        Column("none"), Column("parts", ColumnType.MAPPING), Column("x", ColumnType.NUMBER),
        Column("n", ColumnType.INTEGER),
    ),
    [("a|b", True, ["1", "2"], None, {"k": 1}, 1.5, 7),
     ("<i>\ud800", False, [], "=1+1", {}, math.nan, None)],
)  # fmt: skip
EMPTY = Table("others", (Column("one|"), Column("two")))


def _table(*texts, heading="reason"):
    return Table("t", (Column(heading),), [(text,) for text in texts])


def _sheet(book, name):
    return fastexcel.read_excel(book).load_sheet(name).to_polars()


def _part(book, name):
    with zipfile.ZipFile(io.BytesIO(book)) as archive:
        return archive.read(f"xl/{name}").decode()


@pytest.fixture
def written(tmp_path):
    """The files of tables in every format, by suffix; texts as texts."""

    def write(*tables, formats=FORMATS):
        found = {}
        for suffix in formats:
            write_tables(tables, tmp_path / f"t{suffix}")
            data = (tmp_path / f"t{suffix}").read_bytes()
            found[suffix] = data if suffix in (".xlsx", ".parquet") else data.decode()
        return found

    return write


def test_values_keep_their_kind(written):
    found = written(THINGS)
    header, first, second = csv.reader(io.StringIO(found[".csv"]))
    assert header == list(THINGS.names)
    assert first == ["a|b", "yes", "1; 2", "", "k=1", "1.5", "7"]
    assert second == ["<i>\ufffd", "no", "", "'=1+1", "", "nan", ""]
    assert json.loads(found[".json"])["things"] == [
        {"name": "a|b", "ok": True, "many": ["1", "2"], "none": None, "parts": {"k": 1}, "x": 1.5,
         "n": 7},
        {"name": "<i>\ufffd", "ok": False, "many": [], "none": "=1+1", "parts": {}, "x": None,
         "n": None},
    ]  # fmt: skip
    read = polars.read_parquet(io.BytesIO(found[".parquet"]))
    assert read.equals(frame(THINGS))
    assert read.rows() == [("a|b", True, ["1", "2"], None, "k=1", 1.5, 7),
                           ("<i>\ufffd", False, [], "=1+1", "", None, None)]  # fmt: skip
    assert _sheet(found[".xlsx"], "things").rows() == [
        ("a|b", True, "1; 2", None, "k=1", 1.5, 7.0),
        ("<i>\ufffd", False, None, "=1+1", None, None, None),
    ]
    assert r"a\|b" in found[".md"]
    assert "&lt;i&gt;" in found[".html"]
    sheet = _part(found[".xlsx"], "worksheets/sheet1.xml")
    assert "<f>" not in sheet and 'r="C3"' not in sheet


def test_types_follow_the_columns_whatever_the_rows_hold():
    assert frame(THINGS).schema == frame(Table("t", THINGS.columns)).schema
    large = frame(Table("t", (Column("count", ColumnType.INTEGER),), [(2**70,), (None,)]))
    assert large["count"].to_list() == [2.0**70, None]
    odd = Table("t", (Column("name"), Column("x", ColumnType.NUMBER)), [(7, 2), (None, math.inf)])
    assert frame(odd).rows() == [("7", 2.0), (None, None)]
    assert polars.read_parquet(io.BytesIO(parquet(odd))).equals(frame(odd))


def test_several_tables_are_sheets_sections_keys_or_files_of_a_folder(written, tmp_path):
    both = (THINGS, EMPTY)
    found = written(*both, formats=(".xlsx", ".json", ".html", ".md"))
    assert fastexcel.read_excel(found[".xlsx"]).sheet_names == ["things", "others"]
    assert list(json.loads(found[".json"])) == ["schema_version", "things", "others"]
    assert "<h2>things</h2>\n<table>" in found[".html"]
    assert found[".md"].startswith("## things\n\n| name")
    write_tables(both, tmp_path / "folder")
    write_tables(both[:1], tmp_path / "folder")
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"others.csv", "things.csv"}
    for suffix in (".csv", ".parquet"):
        with pytest.raises(RequestError, match="holds one table, not 2"):
            write_tables(both, tmp_path / f"two{suffix}")
        assert not (tmp_path / f"two{suffix}").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        write_tables([THINGS], tmp_path / "file" / "t.csv")


def test_a_new_column_needs_nothing_but_its_declaration(written):
    """In every format: docs/map.md states that no writer knows a column by name."""
    speed = Column("rate_gb_per_s", ColumnType.NUMBER, "10⁹ B/s", 'a "fast" one',
                   format="{:.1f} GB/s".format)  # fmt: skip
    found = written(Table("copies", (Column("*name*"), speed), [("a", 12.25)]))
    assert found[".csv"] == "*name*,rate_gb_per_s\na,12.25\n"
    record = {"*name*": "a", "rate_gb_per_s": 12.25}
    assert json.loads(found[".json"])["copies"] == [record]
    assert polars.read_parquet(io.BytesIO(found[".parquet"])).to_dicts() == [record]
    assert "| \\*name\\* | rate |\n| --- | ---: |\n| a | 12.2 GB/s |" in found[".md"]
    assert "<td>12.2 GB/s</td>" in found[".html"]
    assert _sheet(found[".xlsx"], "copies").to_dicts() == [record]
    # Headings explain themselves on hovering.
    assert '<th title="a &quot;fast&quot; one (in 10⁹ B/s)">rate' in found[".html"]
    assert 'a "fast" one (in 10⁹ B/s)' in _part(found[".xlsx"], "comments1.xml")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_texts_that_a_spreadsheet_would_evaluate_are_disarmed(start):
    text = f'{start}HYPERLINK("http://x")'
    (row,) = csv.DictReader(io.StringIO(csv_text(_table(text, heading=text)), newline=""))
    disarmed = f"'{text}".replace("\r", "\n")
    assert row == {disarmed: disarmed}


def test_a_sign_behind_what_a_spreadsheet_may_drop_is_disarmed_and_nothing_else():
    def cells(*texts):
        return [cell for (cell,) in csv.reader(io.StringIO(csv_text(_table(*texts)), newline=""))]

    behind = (" =1+1", "\n=1+1", "\x00=1+1", "\x1b=1+1", "\ufeff@x", "\u200b+1", "＝1", "＠x", "\n")
    assert all(cell.startswith("'") for cell in cells(*behind)[1:])
    others = ["a=b", "1-1", "a\x1b[31mb", "aten::mm", 'a "b", c\nd']
    assert cells(*others)[1:] == [text.replace("\x1b", "\ufffd") for text in others]
    numbers = Table("t", (Column("y", ColumnType.NUMBER),), [(-1.5,)])
    assert csv_text(numbers) == "y\n-1.5\n"


def test_appending_to_something_else_is_refused_with_the_difference(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("provider,seed\n")

    def append(*names):
        return append_csv(Table("t", tuple(map(Column, names)), [("x",) * len(names)]), path)

    for names, why in ((["provider", "target"], "target.*seed"), (["seed", "provider"], "order")):
        with pytest.raises(RequestError, match=why):
            append(*names)
    path.write_bytes(b"provider\n\xff\n")
    with pytest.raises(StorageError, match="byte 10"):
        append("provider")


def test_a_missing_library_names_the_extra(monkeypatch):
    assert require("json", extra="none").loads("1") == 1
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(RequestError, match="plotly") as caught:
        require("plotly.offline", extra="plot")
    assert "gemmetry[plot]" in caught.value.hint


def test_markdown_is_aligned_and_escaped():
    columns = (Column("a|b"), Column("t_ns", ColumnType.NUMBER, "ns", format="{} ns".format))
    table = Table("times", columns, [("*x*", 1.5), (None, 2)])
    lines = ["| a\\|b | t |", "| --- | ---: |", "| \\*x\\* | 1.5 ns |", "|  | 2 ns |"]
    assert markdown_text([table]).splitlines() == lines
    assert "\n\n## &lt;none>\n\n" in markdown_text([table, Table("<none>", columns)])
    assert escape_markdown("[a](b) &lt; \\") == "\\[a\\](b) &amp;lt; \\\\"


def test_large_workbooks(monkeypatch):
    """Through files it holds the same; rows beyond a sheet are counted."""
    tables = [THINGS, Table("b", THINGS.columns, THINGS.rows[:1])]
    small = _sheet(workbook(tables), "things")
    monkeypatch.setattr(module, "MOST_CELLS_IN_MEMORY", 4)
    assert _sheet(workbook(tables), "things").equals(small)
    monkeypatch.setattr(module, "MOST_ROWS", 1)
    assert left_out(tables) == ["things: rows left out because they do not fit on a sheet: 1"]
    assert len(_sheet(workbook(tables), "things")) == 1
