from __future__ import annotations

from gemmetry.traces import timeline
from gemmetry.traces.timeline import KINDS, trace_lanes


def test_a_lane_for_each_stream_with_its_work_by_start(recording):
    made = recording()
    made.kernel("second", 300, 50, stream=7)
    made.kernel("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT", 100, 150, stream=7)
    made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 120, 30, stream=9)
    made.kernel("flash_fwd_kernel", 600, 5, stream=7)
    made.memcpy(700, 1, stream=9)
    lanes = trace_lanes(made.trace("one.json"), 3)
    assert [(lane.device, lane.stream, lane.rank) for lane in lanes] == [(0, 7, 3), (0, 9, 3)]
    first, second = lanes
    assert first.start_ns.tolist() == [100, 300, 600]
    assert [KINDS[kind] for kind in first.kind] == ["gemm", "other", "attention"]
    assert [KINDS[kind] for kind in second.kind] == ["communication", "copy"]
    assert [first.names[name] for name in first.name][1] == "second"
    assert first.count.tolist() == [1, 1, 1]


def test_too_many_events_are_joined_without_losing_time_at_the_edges(recording, monkeypatch):
    monkeypatch.setattr(timeline, "MOST_EVENTS", 100)
    made = recording()
    for number in range(1000):
        made.kernel(f"k{number % 3}", 10 * number, 9)
    made.kernel("long", 20_000, 100_000_000)
    (lane,) = trace_lanes(made.trace(), None)
    assert len(lane.start_ns) < 100
    assert lane.count.sum() == 1001
    assert lane.start_ns[0] == 0
    assert lane.start_ns[-1] + lane.duration_ns[-1] == 100_020_000
    assert lane.count[-1] == 1


def test_nothing_gives_no_lanes(recording):
    assert trace_lanes(recording().trace(), None) == []
