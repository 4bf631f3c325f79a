"""The contents of a sweep's files, from its analysis."""

from __future__ import annotations

from gemmetry.documents.sweep_files import collective_sheets, product_sweep
from gemmetry.documents.trace_report import TraceLensSheets
from gemmetry.sweeps.points import analyse_sweep
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


def test_timelines_are_those_of_the_trace_report(made_sweep, products):
    file = next((made_sweep / "256thread/nccl_4channels").rglob("rank1/*.gz"))
    report = build_report(
        [Trace(file, read_trace(file, use_cache=False))], {}, sheets=TraceLensSheets()
    )
    sheet = report.table("gpu_timeline")
    assert products.points[0].timelines[1] == {name: (ms, share) for name, ms, share in sheet.rows}


def test_repeats_are_numbered_where_there_are_several(tmp_path, sweeps):
    points = [sweeps.MadePoint(repeat=n, steps=1, layers=1, ranks=1) for n in (1, 2)]
    found = product_sweep(analyse_sweep(sweeps.write_sweep(tmp_path, points)))
    assert [point.full_config for point in found.points] == [
        "256thread_8ch_repeat_01", "256thread_8ch_repeat_02",
    ]  # fmt: skip


def test_collectives_of_one_gpu_have_no_report(tmp_path, sweeps):
    point = sweeps.MadePoint(steps=1, layers=1, is_overlapped=False, ranks=1)
    found = analyse_sweep(sweeps.write_sweep(tmp_path, [point]))
    assert "nccl_summary_implicit_sync" not in {
        sheet.name for sheet in collective_sheets(found.points[0])
    }
