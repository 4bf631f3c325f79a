from __future__ import annotations

from gemmetry.traces import timeline
from gemmetry.traces.timeline import operator_kind, trace_lanes


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


def test_kinds_of_operators():
    assert operator_kind("aten::_scaled_dot_product_flash_attention_for_cpu") == "attention"
    assert operator_kind("aten::copysign") == "other"
