from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.reports.trace_report import OUR_SHEETS, build_report
from gemmetry.traces.loading import read_all
from gemmetry.traces.summary import KEYS
from gemmetry.traces.tracelens_sheets import BY_NAME

DATA = Path(__file__).parents[1] / "data"
RANK0 = "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz"
RANK1 = "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz"
MATMUL = "traces/h200_matmul.pt.trace.json.gz"


def test_one_file_has_tracelens_columns_and_ours_beside(report_of):
    report = report_of(RANK0)
    names = [table.name for table in report.tables]
    theirs = [name for name in names if name in BY_NAME]
    assert theirs[0] == "gpu_timeline"
    assert names == theirs + [name for name in OUR_SHEETS if name in names]
    for name in theirs:
        assert report.table(name).headings == BY_NAME[name].headings
    summary = report.table("summary")
    assert set(KEYS) - {"top_gemms"} <= set(summary.headings)


def test_all_gemm_time_is_in_the_sheet_of_gemms(report_of):
    report = report_of(RANK0)
    gemms = report.table("gemms")
    total = sum(row[gemms.headings.index("sum_us")] for row in gemms.rows)
    assert round(total * 1000) == report.summaries[0].gemm_kernel_ns > 0


def test_several_files_have_a_column_that_tells_them_apart(report_of):
    report = report_of(RANK0, RANK1)
    timeline = report.table("gpu_timeline")
    assert timeline.headings == ("file", *BY_NAME["gpu_timeline"].headings)
    assert len({row[0] for row in timeline.rows}) == 2
    assert len(timeline.rows) == 16
    assert report.table("straggler_summary").headings[0] == "rank"


def test_several_jobs_have_a_column_too_and_ranks_of_both(report_of):
    report = report_of("collectives/h200x4", "collectives/hta_2of128")
    wide = report.table("nccl_implicit_sync")
    assert wide.headings[0] == "job"
    jobs = {row[0] for row in wide.rows}
    assert len(jobs) >= 1
    stragglers = report.table("straggler_summary")
    assert stragglers.headings[0] == "job"
    assert all(len(row) == len(wide.headings) for row in wide.rows)


def test_a_job_is_matched_and_its_ranks_are_compared(job_report):
    assert len(job_report.table("ranks").rows) == 4
    assert len(job_report.table("straggler_summary").rows) == 4
    matched = len(job_report.jobs[0].matching.matched)
    assert len(job_report.table("nccl_implicit_sync").rows) == matched > 50


def test_what_cannot_be_read_is_told_and_the_rest_is_there(report_of, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    report = report_of(MATMUL, broken)
    assert list(report.errors) == [str(broken)]
    assert any(str(broken) in note for note in report.notes)
    problems = report.table("problems")
    assert problems.rows[0][0] == str(broken)
    assert len(report.summaries) == 1


def test_a_trace_that_ends_early_is_told(report_of, tmp_path):
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


def test_lanes_are_gathered_only_if_they_are_asked_for(report_of):
    assert report_of(MATMUL, with_lanes=False).lanes == []
    assert len(report_of(MATMUL).lanes) == 1


def test_stages_add_up(tmp_path):
    errors, times = {}, {}
    traces = read_all([DATA / RANK0], errors, use_cache=False, timings=times)
    build_report(traces, errors, times=times)
    assert set(times) == {"read", "join", "tables"}
    assert all(seconds > 0 for seconds in times.values())


def test_a_single_trace_without_communication_has_no_notes_of_ranks(report_of):
    assert report_of(MATMUL).notes == []
