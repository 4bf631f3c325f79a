"""The workbooks of single traces."""

from __future__ import annotations

import openpyxl

from gemmetry.analysis.sweeps.ranks.worker import RankTask, analyse_rank, hook_of
from gemmetry.reports.sweeps.workbooks import RANK_HOOK


def test_a_trace_is_reported_while_it_is_read(tmp_path, sweeps):
    folder = sweeps.write_sweep(tmp_path / "sweep", [sweeps.MadePoint(steps=1, layers=1, ranks=1)])
    path = tmp_path / "out" / "perf_8ch_rank0.xlsx"
    (trace,) = folder.rglob("*.gz")
    found = analyse_rank(RankTask(str(trace), 0, "name", str(path)), hook_of(RANK_HOOK))
    assert found.problems == ()
    names = openpyxl.load_workbook(path, read_only=True).sheetnames
    assert {"gpu_timeline", "ops_summary", "GEMM", "kernel_summary", "coll_analysis"} <= {*names}


def test_a_folder_that_cannot_be_written_costs_the_workbook_only(tmp_path, sweeps):
    folder = sweeps.write_sweep(tmp_path / "sweep", [sweeps.MadePoint(steps=1, layers=1, ranks=1)])
    (trace,) = folder.rglob("*.gz")
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "perf_8ch_rank0.xlsx"
    found = analyse_rank(RankTask(str(trace), 0, "name", str(path)), hook_of(RANK_HOOK))
    assert found.gemms
    assert len(found.problems) == 1
    assert f"{path} is not written" in found.problems[0]
