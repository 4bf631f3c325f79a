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
    found = zip(timeline.columns["type"], timeline.columns["time ms"], strict=True)
    assert [*found] == [tuple(row[:2]) for row in TIMELINE[1:]]
    head, *rows = GEMM
    assert report.sheet("GEMM").rows() == [dict(zip(head, row, strict=True)) for row in rows]


def test_what_is_missing_is_named(tmp_path):
    path = workbook(
        tmp_path / "r.xlsx", gpu_timeline=TIMELINE, nccl_summary_long=[["rank", "dtype"]]
    )
    report = read_tracelens_report(path)
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
        read_tracelens_report(workbook(path, mine=[["x"]]))
    assert "mine" in raised.value.hint
