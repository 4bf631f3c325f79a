from __future__ import annotations

from gemmetry.traces.report import CollectiveMessage, job_lanes

RANKS = (
    "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz",
    "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz",
)


def test_the_lanes_with_the_most_work_are_chosen(job_report):
    (whole,) = job_lanes(job_report, 128)
    assert (whole.left_out, len(whole.ranks)) == (0, 4)
    lanes = [lane for rank in whole.ranks for lane in rank.lanes]
    assert whole.base_ns == min(int(lane.start_ns[0]) for lane in lanes)
    (job,) = job_lanes(job_report, 2)
    shown = [lane for rank in job.ranks for lane in rank.lanes]
    assert (job.left_out, len(shown)) == (len(lanes) - 2, 2)
    work = sorted((int(lane.duration_ns.sum()) for lane in lanes), reverse=True)
    assert sorted((int(lane.duration_ns.sum()) for lane in shown), reverse=True) == work[:2]


def test_streams_are_in_one_order_on_all_ranks(job_report):
    (job,) = job_lanes(job_report, 128)
    orders = {tuple(lane.stream for lane in rank.lanes) for rank in job.ranks}
    assert len(orders) == 1


def test_a_message_has_no_bandwidth_where_a_rank_has_no_file(report_of, job_report):
    (two,) = job_lanes(report_of(*RANKS), 128)
    assert {message for rank in two.ranks for message in rank.messages.values()} == {
        CollectiveMessage("all_gather", 402_726_912, "BFloat16", 4, None)
    }
    (four,) = job_lanes(job_report, 128)
    speeds = [m.bus_bandwidth for rank in four.ranks for m in rank.messages.values()]
    assert any(speeds)


def test_without_lanes_there_is_no_job(report_of):
    assert job_lanes(report_of("traces/h200_matmul.pt.trace.json.gz", with_lanes=False), 9) == []
