"""The workbooks of single traces."""

from __future__ import annotations

import openpyxl

from gemmetry.sweeps.folder import RankFile
from gemmetry.sweeps.workers import RankTask, analyse_rank


def test_a_trace_is_reported_while_it_is_read(tmp_path, sweeps):
    """A folder that cannot be written costs the workbook only."""
    folder = sweeps.write_sweep(tmp_path / "sweep", [sweeps.MadePoint(steps=1, layers=1, ranks=1)])
    (trace,) = folder.rglob("*.gz")
    # The path does not name the rank; the trace does.
    task = RankTask(RankFile(trace, None), f"{tmp_path}/out/perf_8ch_")
    found = analyse_rank(task)
    path = tmp_path / "out" / "perf_8ch_rank0.xlsx"
    assert (found.problems, found.workbook) == ((), str(path))
    names = openpyxl.load_workbook(path, read_only=True).sheetnames
    assert {"gpu_timeline", "ops_summary", "GEMM", "kernel_summary", "coll_analysis"} <= {*names}
    (tmp_path / "file").write_text("")
    task = RankTask(RankFile(trace, 0), f"{tmp_path}/file/perf_8ch_")
    found = analyse_rank(task)
    assert found.gemms
    assert found.workbook == ""
    (problem,) = found.problems
    assert "perf_8ch_rank0.xlsx" in problem
