from __future__ import annotations

import dataclasses
import re

import pytest

from gemmetry.traces import figures as trace_timeline
from gemmetry.traces.figures import timeline_groups

RANKS = (
    "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz",
    "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz",
)


@pytest.fixture(scope="module")
def two_ranks(report_of):
    return report_of(*RANKS)


def test_ranks_of_a_job_stand_on_one_time_axis(job_report):
    (group,) = timeline_groups(job_report)
    lanes = [lane for lane in group["lanes"] if "start" in lane]
    assert {lane["label"].split(" · ")[0] for lane in lanes} == {f"rank {r}" for r in range(4)}
    ends = [sum(lane["start"]) + lane["length"][-1] for lane in lanes]
    assert max(ends) == group["window"]
    assert min(lane["start"][0] for lane in lanes) == 0
    assert sum(len(lane["start"]) for lane in lanes) == sum(
        len(lane.start_ns) for lane in job_report.lanes
    )
    assert group["left_out"] == 0


def test_of_too_many_lanes_those_with_most_work_are_drawn(job_report, monkeypatch):
    monkeypatch.setattr(trace_timeline, "MOST_LANES", 3)
    (group,) = timeline_groups(job_report)
    assert len([lane for lane in group["lanes"] if "start" in lane]) == 3
    assert group["left_out"] == len(job_report.lanes) - 3


def test_streams_are_in_one_order_on_all_ranks(two_ranks):
    # On rank 1 the first stream has hardly any work, so that the others have more in total.
    lanes = [
        dataclasses.replace(lane, duration_ns=lane.duration_ns // 100)
        if (lane.rank, lane.stream) == (1, 7)
        else lane
        for lane in two_ranks.lanes
    ]
    (group,) = timeline_groups(dataclasses.replace(two_ranks, lanes=lanes))
    orders = {
        rank: [lane["label"].partition(" · ")[2] for lane in group["lanes"]
               if lane["label"].startswith(f"rank {rank}")]
        for rank in range(2)
    }  # fmt: skip
    assert orders[0] == orders[1] == ["steps", "stream 24", "stream 7", "stream 20"]


def test_work_has_its_operator_its_shape_and_what_it_sent(two_ranks, job_report):
    (group,) = timeline_groups(two_ranks)
    gemm = next(work for work in group["works"] if work[0].startswith("nvjet"))
    assert gemm[1] in ("aten::addmm", "aten::mm")
    assert re.fullmatch(r"16384x\d+x\d+ bf16 tn", gemm[2])
    assert gemm[3] >= 2 * 16384 * 4096 * 4096
    sent = {work[2] for work in group["works"] if "nccl" in work[0].lower()}
    assert sent == {"all_gather · 384 MiB BFloat16 · 4 ranks"}
    # Two of its four ranks have no file: a bandwidth would be a bound.
    assert all(lane.get("bandwidth") is None for lane in group["lanes"])
    (group,) = timeline_groups(job_report)
    speeds = [
        speed for lane in group["lanes"] for speed in lane.get("bandwidth") or () if speed
    ]  # fmt: skip
    reported = [one.bus_bandwidth for one in job_report.jobs[0].matching.matched]
    assert sorted(speeds) == sorted(
        round(speed, 2) for speed in reported if speed for _ in range(4)
    )
