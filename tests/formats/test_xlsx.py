from __future__ import annotations

import datetime
import io
import math
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.errors import RequestError
from gemmetry.formats import xlsx
from gemmetry.formats.xlsx import (
    TraceLensReport,
    Workbook,
    WorkbookError,
    by_column,
    read_tracelens_report,
)

xlsxwriter = pytest.importorskip("xlsxwriter")

REFERENCES = (
    '<?xml version="1.0"?><Relationships xmlns="r"><Relationship Id="rId1" '
    'Target="worksheets/sheet1.xml"/></Relationships>'
)
BOOK = (
    '<?xml version="1.0"?><workbook xmlns="m" xmlns:r="r"><sheets>'
    '<sheet name="s" sheetId="1" r:id="rId1"/></sheets></workbook>'
)


def written(**sheets: list[list[Any]]) -> bytes:
    """A workbook; `constant_memory` has the texts in the cells, not all in one list."""
    buffer = io.BytesIO()
    options = {"nan_inf_to_errors": True, "strings_to_formulas": False, "strings_to_urls": False,
               "constant_memory": sheets.pop("constant_memory", False)}  # fmt: skip
    with xlsxwriter.Workbook(buffer, options) as book:
        # Otherwise the same cells give other bytes at another time.
        book.set_properties({"created": datetime.datetime(2026, 1, 1)})
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for number, row in enumerate(rows):
                for place, cell in enumerate(row):
                    if cell is not None:
                        sheet.write(number, place, cell)
    return buffer.getvalue()


def made(sheet: str, texts: str = "<sst/>", **parts: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as book:
        usual = {"_rels/workbook": REFERENCES, "workbook": BOOK, "worksheets/sheet1": sheet,
                 "sharedStrings": texts}  # fmt: skip
        for name, text in (usual | parts).items():
            book.writestr(f"xl/{name}.xml{'.rels' if name[0] == '_' else ''}", text)
    return buffer.getvalue()


def sheet(rows: str) -> str:
    return f'<worksheet xmlns="m"><sheetData>{rows}</sheetData></worksheet>'


TEXTS = st.text(
    st.characters(
        codec="utf-8", exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"
    ),
    min_size=1,
    max_size=12,
)
FLOATS = st.floats(-1e300, 1e300, allow_subnormal=False).map(
    # XlsxWriter writes 16 digits. (The largest number of all would be rounded up to infinity.)
    lambda number: float(f"{number:.15G}")
)
CELLS = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), TEXTS, FLOATS)


@given(st.lists(st.lists(CELLS, min_size=1, max_size=5), min_size=1, max_size=6), st.booleans())
@settings(deadline=None, max_examples=40)
def test_reads_what_was_written(rows, constant_memory):
    book = Workbook(written(s=rows, constant_memory=constant_memory))
    assert book.names == ["s"]
    found = book.rows("s")
    expected = [{i: cell for i, cell in enumerate(row) if cell is not None} for row in rows]
    assert [row for row in found if row] == [row for row in expected if row]
    for row, other in zip((r for r in found if r), (r for r in expected if r), strict=True):
        for place, cell in other.items():
            assert isinstance(row[place], str) == isinstance(cell, str)
            assert isinstance(row[place], bool) == isinstance(cell, bool)


def test_columns_by_name():
    rows = [["a", "b", None, "a"], [1, None, 5, 2], [None, "x"], [math.nan]]
    columns = by_column(Workbook(written(s=rows)).rows("s"))
    assert columns == {"a": [1, None, None], "b": [None, "x", None]}
    assert by_column([]) == {}


def test_formulas_give_the_value_that_was_stored_and_dates_numbers():
    buffer = io.BytesIO()
    with xlsxwriter.Workbook(buffer) as book:
        page = book.add_worksheet("s")
        page.write_formula(0, 0, "=1+1", value=2)
        page.write_formula(0, 1, '="a"', value="a")
        page.write_datetime(0, 2, datetime.datetime(2026, 1, 1))
        page.write_rich_string(0, 3, "ri", book.add_format({"bold": True}), "ch")
    assert Workbook(buffer.getvalue()).rows("s") == [{0: 2, 1: "a", 2: 46023, 3: "rich"}]


@pytest.mark.parametrize("kind", ["n", "s", "b", "e", "str", "inlineStr", "d", "?"])
def test_odd_values_are_cells_or_none(kind):
    for value in ("", "x", "1e400", "nan", "-inf", "9" * 30, "0x10", "1_0"):
        content = made(sheet(f'<row><c r="B2" t="{kind}"><v>{value}</v></c></row>'))
        (row,) = Workbook(content).rows("s")
        for cell in row.values():
            assert not isinstance(cell, float) or math.isfinite(cell), value


def texts(*ones: str, counts: str = "") -> str:
    return f'<sst xmlns="m"{counts}>{"".join(f"<si>{one}</si>" for one in ones)}</sst>'


@pytest.mark.parametrize(
    ("rows", "shared", "expected"),
    [
        # Phonetic texts are left out, and escapes are characters.
        (["".join(f'<c t="s"><v>{n}</v></c>' for n in (0, 1, 2, 3, "x", -1))],
         texts("<t>a</t><rPh><t>aloud</t></rPh>", "<r><t>b</t></r><r><t>c</t></r>",
               "<t>x_x001B_y</t>"), [{0: "a", 1: "bc", 2: "x\x1by"}]),
        # A cell far away takes no room for what is between.
        (['<c r="A1"><v>1</v></c>', '<c r="XFD1048576"><v>2</v></c>'], "", [{0: 1}, {16383: 2}]),
        (['<c r="ZZZ1"><v>1</v></c><c r="x"><v>2</v></c>'], "", [{}]),
        (['<c r="ZZZZZZZZ1"><v>1</v></c><c r="XFD9"><v>2</v></c>'], "", [{0: 1, 16383: 2}]),
        # Nor does a stated number of texts.
        *[(['<c t="s"><v>0</v></c>'],
           texts("<t>a</t>", counts=f' count="{count}" uniqueCount="{count}"'), [{0: "a"}])
          for count in ("4294967295", "18446744073709551615", "-1", "x")],
    ],
)  # fmt: skip
def test_cells_of_rows(rows, shared, expected):
    content = made(sheet("".join(f"<row>{row}</row>" for row in rows)), shared or texts())
    assert Workbook(content).rows("s") == expected


def test_a_text_that_many_cells_share_is_held_once():
    """20,000 cells of 1 MB each, in a workbook of some 100 KB."""
    cell = '<row><c t="s"><v>0</v></c></row>'
    content = made(sheet(cell * 20_000), texts(f"<t>{'x' * 1_000_000}</t>"))
    assert len(content) < 200_000
    first, *others = Workbook(content).rows("s")
    assert len(others) == 19_999 and all(row[0] is first[0] for row in others)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ('<c t="str"><v><![CDATA[a<b]]></v></c>', "a<b"),
        ("<c><v>1<!-- x -->2</v></c>", 12),
        ('<c t="inlineStr"><is><t> a </t></is></c>', " a "),
        ("<c><v>9007199254740993</v></c>", 9_007_199_254_740_993),
        ("<c><v>2.0</v></c>", 2),
        ('<c t="e"><v>#SPILL!</v></c>', None),
        ('<c t="str"><v>1.50</v></c>', "1.50"),
    ],
)
def test_a_value_is_what_the_file_holds(cell, expected):
    """Whatever else is in the column."""
    for row in (f"<row>{cell}<c><v>3</v></c></row>", f'<row r="9">{cell}<c><v>3</v></c></row>'):
        content = made(sheet(f"<row><c><v>1.5</v></c></row>{row}"))
        assert Workbook(content).rows("s")[1].get(0) == expected


def test_more_cells_than_memory_should_hold(monkeypatch):
    monkeypatch.setattr(xlsx, "MOST_CELLS", 3)
    with pytest.raises(WorkbookError, match="sheet 's'"):
        Workbook(written(s=[[1, 2], [3, 4]])).rows("s")
    # Sheets that are one part count each, so that many of them do not take many times the memory
    # of the largest one.
    names = "".join(f'<sheet name="{name}" r:id="rId1"/>' for name in "ab")
    book = f'<workbook xmlns="m" xmlns:r="r"><sheets>{names}</sheets></workbook>'
    cells = sheet("<row><c><v>1</v></c><c><v>2</v></c></row>")
    workbook = Workbook(made(cells, workbook=book))
    assert workbook.rows("a") == [{0: 1, 1: 2}]
    with pytest.raises(WorkbookError, match="sheet 'b'"):
        workbook.rows("b")


def test_a_part_larger_than_memory_should_hold(monkeypatch):
    monkeypatch.setattr(xlsx, "MOST_UNPACKED_BYTES", 1 << 20)
    content = made(sheet("<row></row>" * 100_000))
    assert len(content) < 10_000
    with pytest.raises(WorkbookError, match=r"xl/worksheets/sheet1.xml"):
        Workbook(content).rows("s")


@pytest.mark.parametrize("kind", ['[<!ENTITY b "lol">]', 'SYSTEM "file:///etc/passwd"'])
def test_declarations_are_refused(kind):
    declared = f"<!DOCTYPE x {kind}>"
    with pytest.raises(WorkbookError, match="declares a document type"):
        Workbook(made(declared + sheet("<row><c><v>&b;</v></c></row>"))).rows("s")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no whole zip archive"),
        (b"PK\x03\x04" + b"\xff" * 99, "no whole zip archive"),
        (written(s=[[1]])[:-500], "no whole zip archive"),
        (made(sheet("<row>"), workbook="<x"), r"xl/workbook.xml, line 1, column 0"),
    ],
)
def test_what_is_not_a_workbook(content, message):
    with pytest.raises(WorkbookError, match=message):
        Workbook(content)


def test_parts_that_are_missing():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as book:
        book.writestr("x", "y")
    with pytest.raises(WorkbookError, match=r"it has no xl/_rels/workbook\.xml\.rels"):
        Workbook(buffer.getvalue())
    for place, names in (("../../etc", []), ("/xl/worksheets", ["s"])):
        references = REFERENCES.replace("worksheets", place)
        content = made(sheet(""), **{"_rels/workbook": references})
        assert Workbook(content).names == names


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_damage_anywhere_gives_cells_or_a_reason(data):
    content = bytearray(written(s=[["a", "b"], [1, "x"], [2.5, True]]))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        book = Workbook(bytes(content))
        for name in book.names:
            by_column(book.rows(name))
    except WorkbookError as error:
        assert str(error)


TIMELINE = [
    ["type", "time ms", "percent"],
    ["computation_time", 12.5, 62.5],
    ["idle_time", 7.5, 37.5],
    ["total_time", 20, 100],
]
GEMM = [
    ["param: M", "name", "Kernel Time (µs)_mean", "param: bias", "name_count", "UID_first"],
    [2048, "aten::mm", 52.25, False, 3, 17],
    [1024, "aten::addmm", 7.5, True, 1, None],
]


def report_of(folder: Path, **sheets: list[list[Any]]) -> TraceLensReport:
    path = folder / "r.xlsx"
    path.write_bytes(written(**sheets))
    return read_tracelens_report(path)


def test_sheets_of_tracelens(tmp_path):
    report = report_of(tmp_path, gpu_timeline=TIMELINE, GEMM=GEMM, other=[["x"], [1]])
    assert list(report.sheets) == ["gpu_timeline", "GEMM"]
    timeline = report.sheet("gpu_timeline", ("type", "time ms"))
    found = zip(timeline.columns["type"], timeline.columns["time ms"], strict=True)
    assert [*found] == [tuple(row[:2]) for row in TIMELINE[1:]]
    head, *rows = GEMM
    assert report.sheet("GEMM").rows() == [dict(zip(head, row, strict=True)) for row in rows]


def test_what_is_missing_is_named(tmp_path):
    report = report_of(tmp_path, gpu_timeline=TIMELINE, nccl_summary_long=[["rank", "dtype"]])
    with pytest.raises(RequestError, match="'GEMM'") as raised:
        report.sheet("GEMM")
    assert "gpu_timeline" in raised.value.hint
    with pytest.raises(RequestError, match="'stream'") as raised:
        report.sheet("gpu_timeline", ("type", "stream"))
    assert "time ms" in raised.value.hint
    empty = report.sheet("nccl_summary_long")
    assert (len(empty), list(empty.columns)) == (0, ["rank", "dtype"])


def test_files_that_are_not_reports(tmp_path):
    path = tmp_path / "r.xlsx"
    damaged = b"PK\x03\x04" + b"\xff" * 100
    for content, why in ((None, "cannot be read"), (b"text", "not an xlsx workbook"),
                         (damaged, "cannot be read as a workbook")):  # fmt: skip
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(RequestError, match=why):
            read_tracelens_report(path)
    with pytest.raises(RequestError, match="none of the sheets") as raised:
        report_of(tmp_path, mine=[["x"]])
    assert "mine" in raised.value.hint
