from __future__ import annotations

import errno
import io
import os
import re
import tempfile
import zipfile
from xml.etree import ElementTree

import pytest

from gemmetry.documents.tracelens_workbooks import trace_workbook
from gemmetry.domain.errors import StorageError
from gemmetry.formats.xlsx import SHEETS, read_tracelens_report
from gemmetry.results import tables as module

pytest.importorskip("xlsxwriter")

RANK0 = "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz"


def _parts(content):
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        return {name: book.read(name).decode() for name in book.namelist()}


def test_what_reads_tracelens_reports_reads_ours(report_of, tmp_path):
    report = report_of(RANK0)
    path = tmp_path / "r.xlsx"
    path.write_bytes(trace_workbook(report))
    read = read_tracelens_report(path)
    expected = [table.name for table in report.tables if table.name in SHEETS]
    assert list(read.sheets) == expected
    for name in expected:
        table, sheet = report.table(name), read.sheets[name]
        assert tuple(sheet.columns) == table.names
        assert len(sheet) == len(table.rows)
    times = read.sheet("gpu_timeline", ("type", "time ms")).columns
    assert times["time ms"] == pytest.approx([row[1] for row in report.table("gpu_timeline").rows])
    kernels = read.sheet("kernel_summary").columns["Kernel name"]
    assert kernels == [row[2] for row in report.table("kernel_summary").rows]


FORMULAS = (
    '=HYPERLINK("http://x","y")', "+1+1", "-1+1|cmd", "@SUM(A1)", "\t=1+1", "\n=1+1", " =1+1",
    "\x00=1+1", "'=1", "{=1+1}", "=cmd|'/C calc'!A0", "#REF!", "http://example.org", "1e5", "007",
    "TRUE", "_x003D_1+1", "\uffff=1", "\ud800=1", "=" * 40_000, "𝕏" * 40_000,
)  # fmt: skip


@pytest.mark.parametrize("most_cells", [10**6, 0], ids=["in memory", "through files"])
def test_formulas_in_every_place_that_has_a_name_are_texts(report_named, monkeypatch, most_cells):
    monkeypatch.setattr(module, "MOST_CELLS_IN_MEMORY", most_cells)
    content = trace_workbook(report_named(FORMULAS, file="=1+1 rank"))
    for name, text in _parts(content).items():
        assert not re.search(r"<f[ >/]|<hyperlinks?[ >/]|ddeLink|externalReference", text), name
        ElementTree.fromstring(text)
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(io.BytesIO(content))
    assert len(book.worksheets) > 10
    cells = [cell for sheet in book.worksheets for row in sheet.iter_rows() for cell in row]
    assert all(cell.data_type != "f" and cell.hyperlink is None for cell in cells)
    texts = {cell.value for cell in cells}
    assert {FORMULAS[0], "+1+1", "1e5", "007", "TRUE", "http://example.org"} <= texts
    assert all(len(text.encode("utf-16-le")) <= 65_534 for text in texts if isinstance(text, str))


def test_temporary_files_that_cannot_be_written_are_reported(report_of, monkeypatch):
    def full(*_arguments, **_keywords):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    report = report_of(RANK0)
    monkeypatch.setattr(module, "MOST_CELLS_IN_MEMORY", 0)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(StorageError, match=os.strerror(errno.ENOSPC)) as caught:
        trace_workbook(report)
    assert "TMPDIR" in caught.value.hint


def test_columns_and_what_is_wrong_with_the_files_are_explained(report_of, tmp_path):
    """Columns on a sheet and in their headings."""
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    report = report_of(RANK0, broken)
    parts = _parts(trace_workbook(report))
    texts = "".join(parts.values())
    assert "2³⁰ bytes/s" in texts
    assert "broken.json could not be read" in texts
    notes = "".join(text for name, text in parts.items() if "comments" in name)
    gemms = report.table("gemms")
    for column in gemms.columns:
        assert column.description in texts
        assert f">{column.meaning}<" in notes
    assert "total time (in µs)" in notes
