"""The contents of a sweep's files, from its analysis."""

from __future__ import annotations

from gemmetry.documents.sweep_files import collective_sheets
from gemmetry.documents.trace_report import TraceLensSheets
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import read_trace
from gemmetry.traces.report import build_report


def test_collective_reports_are_those_of_the_trace_report(made_sweep, analysis):
    files = sorted((made_sweep / "256thread/nccl_4channels").rglob("*.gz"))
    report = build_report(
        [Trace(file, read_trace(file, use_cache=False)) for file in files],
        {},
        sheets=TraceLensSheets(),
    )
    sheets = collective_sheets(analysis.points[0])
    assert len(sheets) == 5
    for sheet in sheets:
        theirs = report.table(sheet.name)
        assert theirs is not None
        assert sheet.names == theirs.names
        assert [list(row) for row in sheet.rows] == [list(row) for row in theirs.rows]
