from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.formats.xlsx import read_tracelens_report

xlsxwriter = pytest.importorskip("xlsxwriter")


def workbook(path: Path, **sheets: list[list[Any]]) -> Path:
    with xlsxwriter.Workbook(path, {"nan_inf_to_errors": True}) as book:
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for number, row in enumerate(rows):
                for place, cell in enumerate(row):
                    if cell is not None:
                        sheet.write(number, place, cell)
    return path


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


def test_columns_by_name(tmp_path):
    path = workbook(tmp_path / "r.xlsx", gpu_timeline=TIMELINE, GEMM=GEMM, other=[["x"], [1]])
    report = read_tracelens_report(path)
    assert list(report.sheets) == ["gpu_timeline", "GEMM"]
    timeline = report.sheet("gpu_timeline", ("type", "time ms"))
    assert dict(zip(timeline.columns["type"], timeline.columns["time ms"], strict=True)) == {
        "computation_time": 12.5,
        "idle_time": 7.5,
        "total_time": 20,
    }
    gemms = report.sheet("GEMM")
    assert len(gemms) == 2
    assert gemms.rows()[0] == {
        "param: M": 2048, "name": "aten::mm", "Kernel Time (µs)_mean": 52.25, "param: bias": False,
        "name_count": 3, "UID_first": 17,
    }  # fmt: skip
    assert gemms.rows()[1]["UID_first"] is None


def test_a_sheet_or_column_that_is_missing_is_named(tmp_path):
    report = read_tracelens_report(workbook(tmp_path / "r.xlsx", gpu_timeline=TIMELINE))
    with pytest.raises(RequestError, match="no sheet 'GEMM'") as raised:
        report.sheet("GEMM")
    assert "gpu_timeline" in raised.value.hint
    with pytest.raises(RequestError, match="no column 'stream'") as raised:
        report.sheet("gpu_timeline", ("type", "stream"))
    assert "time ms" in raised.value.hint


def test_a_sheet_without_rows(tmp_path):
    report = read_tracelens_report(
        workbook(tmp_path / "r.xlsx", gpu_timeline=TIMELINE, nccl_summary_long=[["rank", "dtype"]])
    )
    assert len(report.sheet("nccl_summary_long")) == 0
    assert list(report.sheet("nccl_summary_long").columns) == ["rank", "dtype"]


def test_files_that_are_not_reports(tmp_path):
    with pytest.raises(RequestError, match="cannot be read"):
        read_tracelens_report(tmp_path / "none.xlsx")
    path = tmp_path / "r.xlsx"
    path.write_bytes(b"text")
    with pytest.raises(RequestError, match="not an xlsx workbook"):
        read_tracelens_report(path)
    path.write_bytes(b"PK\x03\x04" + b"\xff" * 100)
    with pytest.raises(RequestError, match="cannot be read as a workbook"):
        read_tracelens_report(path)
    with pytest.raises(RequestError, match="none of the sheets") as raised:
        read_tracelens_report(workbook(path, mine=[["x"]]))
    assert "mine" in raised.value.hint
