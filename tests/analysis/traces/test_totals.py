from __future__ import annotations

import dataclasses

import pytest

from gemmetry.traces.report import gpu_totals, host_totals, job_times, window_parts

RANKS = (
    "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz",
    "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz",
)
MATMUL = "traces/h200_matmul.pt.trace.json.gz"


def test_sums_are_over_the_traces_that_have_a_window(report_of):
    summaries = report_of(*RANKS).summaries
    totals = gpu_totals(summaries)
    assert totals.traces == 2
    assert totals.busy_ns == sum(one.busy_ns for one in summaries)
    assert totals.gemm_kernels == sum(one.gemm_kernels for one in summaries)
    empty = dataclasses.replace(summaries[0], window_ns=0)
    assert gpu_totals([*summaries, empty]) == totals
    assert gpu_totals([empty]).traces == 1
    assert gpu_totals([]).window_ns == 0


def test_parts_of_a_window_add_up_to_it(job_report):
    for summary in job_report.summaries:
        assert sum(window_parts(summary).values()) == summary.window_ns


def test_gemms_that_run_at_the_same_time_take_no_more_than_all_computing(job_report):
    summary = job_report.summaries[0]
    twice = dataclasses.replace(summary, gemm_kernel_ns=2 * summary.compute_union_ns)
    parts = window_parts(twice)
    assert (parts["gemm"], parts["other"]) == (summary.compute_union_ns, 0)


def test_the_time_of_a_job_is_from_its_first_work_to_its_last(report_of):
    report = report_of(*RANKS, MATMUL)
    times = {job.job.name: ns for job, ns in job_times(report.jobs)}
    assert len(times) == len(report.jobs) == 2
    for job in report.jobs:
        starts, ends = zip(*(one.span for one in job.job.ranks), strict=True)
        assert times[job.job.name] == max(ends) - min(starts)


def test_recordings_that_do_not_overlap_have_the_time_of_the_longest_rank(report_of):
    (job,) = report_of(*RANKS).jobs
    first, second = job.job.ranks
    late = dataclasses.replace(second, span=tuple(10**15 + moment for moment in second.span))
    apart = dataclasses.replace(
        job, job=dataclasses.replace(job.job, ranks=(first, late)), clocks=()
    )
    ((_, time),) = job_times([apart])
    assert time == max(end - start for start, end in (first.span, second.span))
    idle = dataclasses.replace(job.job, ranks=(dataclasses.replace(first, span=(0, 0)),))
    assert job_times([dataclasses.replace(job, job=idle)]) == []


def test_totals_of_the_host_have_the_fastest_product(report_of):
    report = report_of("cpu_grid")
    totals = host_totals(report.host_operators, report.host_products)
    assert totals.product_ns <= totals.self_ns
    assert totals.product_calls == sum(row.count for row in report.host_products)
    assert totals.fastest.tflops == pytest.approx(
        max(row.tflops for row in report.host_products if row.tflops is not None)
    )
    assert host_totals([], []).fastest is None
