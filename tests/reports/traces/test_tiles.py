from __future__ import annotations

import dataclasses

from gemmetry.traces.figures import gpu_tiles, window_parts

RANKS = (
    "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz",
    "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz",
)


def test_several_jobs_have_the_shortest_and_the_longest_time(report_of):
    report = report_of(*RANKS, "traces/h200_matmul.pt.trace.json.gz")
    first = gpu_tiles(report)[0]
    assert (first["label"], first["value"]) == ("times of 2 jobs", "144 µs – 25.3 ms")
    report = report_of(
        "traces/h200_matmul.pt.trace.json.gz", "traces/v100_resnet50_2021_part.json.gz"
    )
    assert gpu_tiles(report)[0]["label"] == "windows of 2 traces"


def test_ranks_that_do_not_overlap_have_no_common_time(report_of):
    report = report_of(*RANKS)
    (job,) = report.jobs
    late, rank = 10**15, job.job.ranks[1]
    moved = dataclasses.replace(rank, span=(rank.span[0] + late, rank.span[1] + late))
    apart = dataclasses.replace(job.job, ranks=(job.job.ranks[0], moved))
    first = gpu_tiles(
        dataclasses.replace(report, jobs=[dataclasses.replace(job, job=apart, clocks=())])
    )[0]
    assert (first["label"], first["value"]) == ("longest rank", "25.3 ms")
    assert "do not overlap" in first["detail"]


def test_parts_of_a_window_add_up_to_it(job_report):
    for summary in job_report.summaries:
        assert sum(window_parts(summary).values()) == summary.window_ns
    # Kernels that run at the same time take no more than all computing.
    twice = dataclasses.replace(summary, gemm_kernel_ns=2 * summary.compute_union_ns)
    parts = window_parts(twice)
    assert (parts["gemm"], parts["other"]) == (summary.compute_union_ns, 0)
