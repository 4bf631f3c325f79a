from __future__ import annotations

import pytest

from gemmetry.documents.tracelens import UNKNOWN_GROUP, job_sheets, single_trace_sheet
from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.collectives.summary import Group
from gemmetry.traces.jobs import rank_trace

MIB = 1 << 20


def _cells(table):
    return [dict(zip(table.names, row, strict=True)) for row in table.rows]


@pytest.fixture
def sheets(collective, rank):
    """Two all-reduces of 4 MiB on two ranks; rank 1 enters 30 and 50 ns later."""

    def one(start, duration):
        return collective(
            elements=MIB, in_elements=MIB, out_elements=MIB, start_ns=start, duration_ns=duration
        )

    ranks = [
        rank(0, [one(1000, 130), one(2000, 150)], devices=8),
        rank(1, [one(1030, 100), one(2050, 100)], devices=8),
    ]
    (job,) = analyse_jobs(ranks)
    return {table.name: table for table in job_sheets(job)}


def test_waits_latency_and_bandwidth_of_each_collective(sheets):
    first, second = _cells(sheets["nccl_implicit_sync"])
    assert (first["collective_id"], second["collective_id"]) == ("0_0", "0_1")
    # 4 MiB in 100 ns, in 2³⁰ bytes/s; the factor of an all-reduce on two ranks is 1.
    speed = pytest.approx(4 / 1024 / 100e-9)
    expected = {
        "comm_latency": 0.1, "skew in start time": 0.03, "skew in end time": 0.0,
        "earliest arrival rank": 0, "rank_0_wait_time": 0.03, "rank_1_wait_time": 0.0,
        "avg_wait_time": pytest.approx(0.015), "rank_1_ts": 1.03, "rank_1_dur": 0.1,
        "Full msg size (MB)": 4, "algo bw (GB/s)": speed, "bus bw (GB/s)": speed,
        "node_span": "intra_node",
    }  # fmt: skip
    assert {name: first[name] for name in expected} == expected


def test_the_rank_that_the_others_waited_for(sheets):
    last, waiting = _cells(sheets["straggler_summary"])
    assert (last["rank"], last["times_arrived_last"], last["pct_arrived_last"]) == (1, 2, 100)
    expected = {
        "rank": 0, "times_arrived_first": 2, "node_id": 0, "mean_wait_time_us": pytest.approx(0.04),
        "total_wait_time_us": pytest.approx(0.08), "total_nccl_dur_us": pytest.approx(0.28),
    }  # fmt: skip
    assert {name: waiting[name] for name in expected} == expected


def test_names_are_the_traces_own_where_it_records_them(sheets):
    rows = _cells(sheets["nccl_long"])
    assert [row["Collective name"] for row in rows] == ["allreduce"] * 4
    assert [row["index_in_group"] for row in rows] == [0, 1, 0, 1]
    (kind,) = _cells(sheets["nccl_summary_implicit_sync"])
    assert (kind["count"], kind["comm_latency_max"]) == (2, 0.1)
    assert kind["Total comm latency (ms)"] == pytest.approx(2e-4)


def test_ranks_of_two_nodes_span_nodes(collective, rank):
    group = Group("tp", (0, 8), 2)
    ranks = [rank(one, [collective(group=group)], devices=8) for one in (0, 8)]
    (job,) = analyse_jobs(ranks)
    rows = {t.name: _cells(t) for t in job_sheets(job)}
    assert [row["node_span"] for row in rows["nccl_long"]] == ["inter_node"] * 2
    assert {row["rank"]: row["node_id"] for row in rows["nccl_summary_long"]} == {0: 0, 8: 1}


def test_what_a_trace_does_not_record_stays_empty(collective, rank):
    bare = collective(
        op=None, dtype=None, elements=None, in_elements=None, out_elements=None, group=None
    )
    one = rank(None, [bare])
    (row,) = _cells(single_trace_sheet(one))
    assert row["Process Group Name"] == UNKNOWN_GROUP
    assert row["Collective name"] is None
    assert row["In msg size (MB)_first"] is None
    assert row["dur_std"] is None
    (job,) = analyse_jobs([one])
    found = {table.name: _cells(table) for table in job_sheets(job)}
    assert set(found) == {"nccl_long", "nccl_summary_long"}
    assert found["nccl_long"][0]["node_span"] == "unknown"


def test_names_of_a_trace_are_those_of_its_kernels(recording):
    made = recording()
    made.kernel("gemm", 0, 10)
    made.kernel(
        "ncclDevKernel_AllGather_RING_LL", 20, 10,
        **{"Collective name": "_allgather_base", "In msg nelems": 4, "dtype": "Float"},
    )  # fmt: skip
    made.kernel("ncclDevKernel_AllGather_RING_LL", 40, 10)
    found = rank_trace(made.trace())
    names = [one.written for one in found.collectives]
    assert (names, found.devices) == (["_allgather_base", "allgather"], 1)
