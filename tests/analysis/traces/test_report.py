from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gemmetry.documents.trace_report import OUR_SHEETS, TraceLensSheets
from gemmetry.documents.tracelens import BY_NAME
from gemmetry.domain.errors import RequestError
from gemmetry.traces.page import trace_page
from gemmetry.traces.reading import read_all
from gemmetry.traces.report import ONLY_ON, build_report

DATA = Path(__file__).parents[2] / "data"
RANK0 = "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz"
RANK1 = "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz"
GRID = "cpu_grid"
MATMUL = "traces/h200_matmul.pt.trace.json.gz"


def test_all_gemm_time_is_in_the_sheet_of_gemms(report_of):
    report = report_of(RANK0)
    gemms = report.table("gemms")
    total = sum(row[gemms.names.index("sum_us")] for row in gemms.rows)
    assert round(total * 1000) == report.summaries[0].gemm_kernel_ns > 0


def test_several_files_have_a_column_that_distinguishes_them(report_of):
    report = report_of(RANK0, RANK1)
    timeline = report.table("gpu_timeline")
    assert timeline.names == ("file", *BY_NAME["gpu_timeline"].table(()).names)
    assert len({row[0] for row in timeline.rows}) == 2
    assert len(timeline.rows) == 16
    assert report.table("straggler_summary").names[0] == "rank"


def test_what_cannot_be_read_is_reported_and_the_rest_is_there(report_of, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    report = report_of(MATMUL, broken)
    assert list(report.errors) == [str(broken)]
    assert any(str(broken) in note for note in report.notes)
    problems = report.table("problems")
    assert problems.rows[0][0] == str(broken)
    assert len(report.summaries) == 1


def test_a_trace_that_ends_early_is_reported(report_of, tmp_path):
    text = gzip.decompress((DATA / MATMUL).read_bytes())
    cut = tmp_path / "cut.json"
    cut.write_bytes(text[: len(text) * 3 // 4])
    report = report_of(cut)
    assert any("partial" in note for note in report.notes)


def test_a_rank_twice_is_refused(report_of, tmp_path):
    for name in ("one", "again"):
        (tmp_path / f"{name}.pt.trace.json.gz").write_bytes((DATA / RANK0).read_bytes())
    with pytest.raises(RequestError, match="rank 0 occurs twice"):
        report_of(tmp_path)


def test_lanes_are_gathered_only_if_they_are_requested(report_of):
    assert report_of(MATMUL, with_lanes=False).lanes == []
    assert len(report_of(MATMUL).lanes) == 1


def test_a_trace_of_a_cpu_has_a_sheet_of_its_operators(report_of):
    report = report_of(GRID)
    assert not report.has_gpu_work
    assert [table.name for table in report.tables] == [
        name for name in OUR_SHEETS if name in ("summary", "shapes", "host_operators")]  # fmt: skip
    sheet = report.table("host_operators")
    rows = [dict(zip(sheet.names, row, strict=True)) for row in sheet.rows]
    assert len({row["file"] for row in rows}) == 3
    for file in {row["file"] for row in rows}:
        mine = [row for row in rows if row["file"] == file]
        assert sum(row["self_share"] for row in mine) == pytest.approx(1)
        (product,) = (row for row in mine if row["m"] is not None)
        assert product["name"] == "aten::mm"
        assert [product[key] for key in ("m", "n", "k", "batch")] == [256, 256, 256, 1]
        tflops = 2 * 256**3 / product["median_us"] / 1e6
        assert product["tflops"] == pytest.approx(tflops)
        assert product["total_us"] >= product["self_us"] > 0
    layouts = {(row["dtype"], row["layout"]) for row in rows if row["m"]}
    assert layouts == {("f32", "tn"), ("bf16", "tt")}
    (shape, other) = (dict(zip(report.table("shapes").names, row, strict=True))
                      for row in report.table("shapes").rows)  # fmt: skip
    assert {shape["operation"], other["operation"]} == {
        "matmul_256x256x256_f32t_f32n_f32t", "matmul_256x256x256_bf16t_bf16t_bf16t"}  # fmt: skip
    assert "none of 3 traces has work on a GPU" in report.notes[0]
    assert report.warnings == []


def test_a_trace_of_nothing_is_reported(report_of, tmp_path):
    path = tmp_path / "empty.json"
    path.write_text('{"traceEvents": []}')
    (note,) = report_of(path).notes
    assert "no work on a GPU; and no operators either" in note


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
        texts = {
            row[table.names.index(name)]: row[table.names.index(ONLY_ON)] for row in table.rows
        }
        assert texts == {"my_gemm_kernel": None, "odd_gemm_kernel": "rank 1"}
    page = trace_page(report)
    assert "odd_gemm_kernel · rank 1</span>" in page
    assert page.count(">rank 1</td>") == 2


def test_stages_add_up(tmp_path):
    errors, times = {}, {}
    traces = read_all([DATA / RANK0], errors, use_cache=False, timings=times)
    build_report(traces, errors, sheets=TraceLensSheets(), times=times)
    assert set(times) == {"read", "join", "tables"}
    assert all(seconds > 0 for seconds in times.values())
