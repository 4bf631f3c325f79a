from __future__ import annotations

import io
import json
import zipfile

import fastexcel
import polars
import pytest

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.results.emit import FORMATS, write_tables

THINGS = Table(
    "things",
    (
        Column("name"), Column("ok", ColumnType.BOOLEAN), Column("many", ColumnType.TEXTS),
        Column("none"), Column("parts", ColumnType.MAPPING), Column("x", ColumnType.NUMBER),
    ),
    [("a|b", True, ["1", "2"], None, {"k": 1}, 1.5), ("<i>", False, [], "=1+1", {}, 2)],
)  # fmt: skip
EMPTY = Table("others", (Column("one|"), Column("two")))


def test_texts_are_escaped_and_no_formula_gets_in(tmp_path):
    for suffix, expected in (
        ("md", r"a\|b"),
        ("html", "&lt;i&gt;"),
        ("csv", "a|b,yes,1; 2,,k=1,1.5"),
        ("csv", "'=1+1"),
    ):
        path = tmp_path / f"t.{suffix}"
        write_tables([THINGS], path)
        assert expected in path.read_text()
    write_tables([THINGS], tmp_path / "t.xlsx")
    book = zipfile.ZipFile(io.BytesIO((tmp_path / "t.xlsx").read_bytes()))
    assert b"<f>" not in book.read("xl/worksheets/sheet1.xml")
    assert b"=1+1" in book.read("xl/sharedStrings.xml")


def test_an_empty_table_has_its_header_in_every_format(tmp_path):
    for suffix in FORMATS:
        write_tables([EMPTY], tmp_path / f"t{suffix}")
    assert (tmp_path / "t.csv").read_text() == "one|,two\n"
    assert (tmp_path / "t.md").read_text() == "| one\\| | two |\n| --- | --- |\n"
    assert "<tr><th>one|</th><th>two</th></tr>" in (tmp_path / "t.html").read_text()
    assert json.loads((tmp_path / "t.json").read_text())["others"] == []
    frame = polars.read_parquet(tmp_path / "t.parquet")
    assert (frame.columns, len(frame)) == (["one|", "two"], 0)
    sheet = fastexcel.read_excel(tmp_path / "t.xlsx").load_sheet("others")
    assert [column.name for column in sheet.available_columns()] == ["one|", "two"]


def test_several_tables_are_sheets_sections_keys_or_files_of_a_folder(tmp_path):
    both = [THINGS, EMPTY]
    write_tables(both, tmp_path / "t.xlsx")
    assert fastexcel.read_excel(tmp_path / "t.xlsx").sheet_names == ["things", "others"]
    write_tables(both, tmp_path / "t.json")
    document = json.loads((tmp_path / "t.json").read_text())
    assert list(document) == ["schema_version", "things", "others"]
    assert document["things"] == THINGS.records()
    write_tables(both, tmp_path / "t.html")
    assert "<h2>things</h2>\n<table>" in (tmp_path / "t.html").read_text()
    write_tables(both, tmp_path / "folder")
    write_tables(both[:1], tmp_path / "folder")
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == [
        "others.csv", "things.csv",
    ]  # fmt: skip
    for suffix in (".csv", ".parquet"):
        with pytest.raises(RequestError, match="holds one table, not 2"):
            write_tables(both, tmp_path / f"two{suffix}")
        assert not (tmp_path / f"two{suffix}").exists()


def test_a_new_column_needs_nothing_but_its_declaration(tmp_path):
    """In every format: docs/map.md states that no writer knows a column by name."""
    speed = Column("rate_gb_per_s", ColumnType.NUMBER, "10⁹ B/s", format="{:.1f} GB/s".format)
    table = Table("copies", (Column("name"), speed), [("a", 12.25)])
    for suffix in FORMATS:
        write_tables([table], tmp_path / f"t{suffix}")
    assert (tmp_path / "t.csv").read_text() == "name,rate_gb_per_s\na,12.25\n"
    assert json.loads((tmp_path / "t.json").read_text())["copies"] == [
        {"name": "a", "rate_gb_per_s": 12.25}
    ]
    assert polars.read_parquet(tmp_path / "t.parquet")["rate_gb_per_s"].to_list() == [12.25]
    assert "| name | rate |\n| --- | ---: |\n| a | 12.2 GB/s |" in (tmp_path / "t.md").read_text()
    assert "<td>12.2 GB/s</td>" in (tmp_path / "t.html").read_text()
    sheet = fastexcel.read_excel(tmp_path / "t.xlsx").load_sheet("copies").to_polars()
    assert sheet.to_dicts() == [{"name": "a", "rate_gb_per_s": 12.25}]


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        write_tables([THINGS], tmp_path / "file" / "t.csv")


def test_headings_explain_themselves_on_hovering(tmp_path):
    times = Column("sum_us", ColumnType.NUMBER, "µs", 'total "busy" time')
    write_tables([Table("t", (times, Column("one|")), [(1.0, "a")])], tmp_path / "t.html")
    page = (tmp_path / "t.html").read_text()
    assert '<th title="total &quot;busy&quot; time (in µs)">sum_us</th><th>one|</th>' in page
    write_tables([Table("t", (times, Column("one|")), [(1.0, "a")])], tmp_path / "t.xlsx")
    book = zipfile.ZipFile(tmp_path / "t.xlsx")
    assert 'total "busy" time (in µs)' in book.read("xl/comments1.xml").decode()
