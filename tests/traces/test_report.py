from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.traces.page import trace_page
from gemmetry.traces.report import ONLY_ON

DATA = Path(__file__).parents[1] / "data"
RANK0 = "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz"
GRID = "cpu_grid"
MATMUL = "traces/h200_matmul.pt.trace.json.gz"


def test_what_cannot_be_read_is_reported_and_the_rest_is_there(report_of, tmp_path):
    broken, empty = tmp_path / "broken.json", tmp_path / "empty.json"
    broken.write_text("{")
    report = report_of(MATMUL, broken)
    assert list(report.errors) == [str(broken)]
    assert any(str(broken) in note for note in report.notes)
    assert report.table("problems").rows[0][0] == str(broken)
    assert len(report.summaries) == 1
    empty.write_text('{"traceEvents": []}')
    (note,) = report_of(empty).notes
    assert "no operators either" in note


def test_a_rank_twice_is_refused(report_of, tmp_path):
    for name in ("one", "again"):
        (tmp_path / f"{name}.pt.trace.json.gz").write_bytes((DATA / RANK0).read_bytes())
    with pytest.raises(RequestError, match="rank 0 occurs twice"):
        report_of(tmp_path)


def test_with_gpu_work_in_other_traces_kernels_are_the_workload(report_of):
    report = report_of(MATMUL, GRID)
    assert report.has_gpu_work
    assert report.table("shapes").rows == report_of(MATMUL).table("shapes").rows
    files = {row[0] for row in report.table("host_operators").rows}
    assert len(files) == 3 and not any("h200_matmul" in file for file in files)
    assert "3 of 4 traces" in report.notes[0]
    assert report_of(MATMUL).table("host_operators") is None


def test_work_of_few_ranks_is_named_with_them(job_report, report_of):
    files = [one.file for one in job_report.jobs[0].job.ranks]
    assert job_report.only_on(set(files)) == ""
    assert job_report.only_on({files[3]}) == "rank 3"
    assert job_report.only_on({files[0], files[2]}) == "ranks 0, 2"
    several = report_of("collectives/h200x4", "collectives/hta_2of128")
    assert several.only_on({files[3]}) == f"rank 3 of {several.jobs[0].job.name}"
    assert several.only_on(set(files)) == ""
    assert report_of("traces/h200_matmul.pt.trace.json.gz").only_on(set()) == ""


def test_a_kernel_of_one_rank_alone_is_named_on_the_page(report_of, tmp_path):
    for rank in range(2):
        names = ["my_gemm_kernel", *(["odd_gemm_kernel"] if rank else [])]
        events = [
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 10 + 10 * place,
             "dur": 5, "args": {"device": 0, "stream": 7}}
            for place, name in enumerate(names)
        ]  # fmt: skip
        head = {"distributedInfo": {"rank": rank, "world_size": 2}}
        (tmp_path / f"r{rank}.json").write_text(json.dumps({**head, "traceEvents": events}))
    report = report_of(tmp_path)
    for sheet, name in (("gemms", "kernel"), ("kernel_summary", "Kernel name")):
        table = report.page_table(sheet)
        texts = dict(zip(table.values(name), table.values(ONLY_ON), strict=True))
        assert texts == {"my_gemm_kernel": None, "odd_gemm_kernel": "rank 1"}
    page = trace_page(report)
    assert "odd_gemm_kernel · rank 1</span>" in page
    assert page.count(">rank 1</td>") == 2
