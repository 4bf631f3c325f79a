from __future__ import annotations

import pytest

from gemmetry.traces import timeline
from gemmetry.traces.operators.gemms import GemmShape
from gemmetry.traces.timeline import KINDS, Work, operator_kind, trace_lanes


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
    assert [first.works[work].name for work in first.work][1] == "second"
    assert second.row.tolist() == [2, 4]
    assert first.count.tolist() == [1, 1, 1]


def test_work_knows_its_operator_and_its_shape(recording):
    made = recording()
    for number, at in ((1, 0), (2, 1000)):
        made.operator("aten::mm", at, 100, shapes=[[64, 32], [32, 16]],
                      dtypes=["c10::BFloat16"] * 2, strides=[[32, 1], [16, 1]])  # fmt: skip
        made.launch("my_gemm_kernel", number, at=at + 50, lasts=5)
    made.kernel("my_gemm_kernel", 2000, 5)
    made.operator("aten::relu", 3000, 100)
    made.launch("relu", 9, at=3050, lasts=5)
    (lane,) = trace_lanes(made.trace(), None)
    shape = GemmShape(64, 16, 32, 1, "bf16", "tt")
    linked = Work("my_gemm_kernel", "aten::mm", shape, is_alone=True)
    assert [lane.works[work] for work in lane.work] == [
        linked,
        linked,
        Work("my_gemm_kernel", "", shape, inferred=True, is_alone=True),
        Work("relu", "aten::relu"),
    ]


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


def test_without_work_on_a_gpu_a_lane_for_each_thread_with_the_innermost_operator(recording):
    made = recording()
    made.operator("aten::matmul", 100, 50)
    made.operator("aten::mm", 110, 30)
    made.operator("aten::relu", 200, 10)
    made.operator("gloo:all_reduce", 100, 500, thread=2)
    made.operator("aten::copy_", 700, 5, thread=2)
    longest, other = trace_lanes(made.trace("one.json"), None)
    assert (longest.thread, other.thread) == ("1/2", "1/1")
    assert [KINDS[kind] for kind in longest.kind] == ["communication", "copy"]
    assert other.start_ns.tolist() == [100, 110, 140, 200]
    assert other.duration_ns.tolist() == [10, 30, 10, 10]
    assert [other.works[work].name for work in other.work] == [
        "aten::matmul", "aten::mm", "aten::matmul", "aten::relu"]  # fmt: skip
    assert [KINDS[kind] for kind in other.kind] == ["gemm", "gemm", "gemm", "other"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "gemm"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("c10d::allreduce_", "communication"),
        ("record_param_comms", "communication"),
        ("aten::zero_", "copy"),
        ("aten::copysign", "other"),
    ],
)
def test_kinds_of_operators(name, kind):
    assert operator_kind(name) == kind
