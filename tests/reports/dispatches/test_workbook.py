from __future__ import annotations

import io
import zipfile

import pytest

from gemmetry.dispatches.results import to_workbook
from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.errors import Outcome

pytest.importorskip("xlsxwriter")
fastexcel = pytest.importorskip("fastexcel")

FORMULA = '=HYPERLINK("http://x")'


@pytest.fixture
def workbook(result_set):
    return to_workbook(result_set)


def _sheet(workbook, name):
    sheet = fastexcel.read_excel(workbook).load_sheet(name, header_row=0)
    return sheet.to_polars().to_dicts()


def test_sheets_hold_records_failures_environment_and_columns(workbook, result_set):
    assert fastexcel.read_excel(workbook).sheet_names == [
        "records", "failures", "environment", "columns",
    ]  # fmt: skip
    records = _sheet(workbook, "records")
    assert len(records) == len(result_set.records)
    median = result_set.records[0].measurement.median_ns
    assert records[0]["median_ns\n[ns]"] == pytest.approx(median, rel=1e-14)
    failures = _sheet(workbook, "failures")
    assert len(failures) == sum(r.outcome is not Outcome.OK for r in result_set.records)
    fields = {row["field"]: row["value"] for row in _sheet(workbook, "environment")}
    assert fields["cpu"] == "Example CPU @ 2.80GHz"
    assert fields["command"] == result_set.command
    assert [row["column"] for row in _sheet(workbook, "columns")] == [c.name for c in COLUMNS]


def test_texts_are_never_formulas_or_links(workbook):
    reasons = [row["reason"] for row in _sheet(workbook, "failures")]
    assert FORMULA in reasons
    with zipfile.ZipFile(io.BytesIO(workbook)) as archive:
        sheets = [n for n in archive.namelist() if n.startswith("xl/worksheets/sheet")]
        text = b"".join(archive.read(name) for name in sheets)
    assert b"<f>" not in text
    assert b"<hyperlink" not in text


def test_records_can_be_filtered_under_a_frozen_header(workbook):
    with zipfile.ZipFile(io.BytesIO(workbook)) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
    assert 'state="frozen"' in sheet
    assert "<autoFilter" in sheet
    assert 'type="dataBar"' in sheet
