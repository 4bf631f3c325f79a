"""Names and sentences of every report."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.dispatches.analysis import RunMarks, RunState, find_run_marks, relative_half_width
from gemmetry.dispatches.comparison import Leader
from gemmetry.dispatches.labels import (
    half_width_label,
    run_state_lines,
    shorten_configurations,
    verdict_line,
)
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Measurement

NAME = "matmul_8x8x8_f32t_f32t_f32t"
LEADER = Leader(name="torch", is_configuration=False, operations=9, fastest=6, shown=4, ratio=1.32,
                marked=0, unverified=0)  # fmt: skip
LEADERS = (
    {}, {"shown": 6}, {"shown": 0, "ratio": 1.01}, {"operations": 1, "fastest": 1, "shown": 1},
    {"operations": 1, "fastest": 1, "shown": 0},
    {"operations": 1, "fastest": 1, "shown": 0, "undecided": 1}, {"shown": 0, "undecided": 5},
    {"undecided": 2}, {"ratio": 0.79, "fastest": 3}, {"marked": 1}, {"marked": 3, "unverified": 9},
    {"unverified": 2}, {"imported": 9}, {"imported": 2}, {"alone": 4},
    {"is_configuration": True, "name": "tile", "ratio": 0.9},
)  # fmt: skip
STATES = (
    {"noisy": 57, "busy": 53}, {"throttled": 63, "noisy": 60}, {"throttled": 63, "busy": 60},
    {"few samples": 63},
)  # fmt: skip


def _marks(common, device="cpu"):
    state = RunState(measured=63, common=common, usual_half_width=0.11)
    return RunMarks({(device, device): state})


def test_sentences_about_a_run(make_record, golden):
    """Who is fastest, how often and how surely; what most rows share is a reason for care."""
    alone = make_record(NAME)
    leaders = [dataclasses.replace(LEADER, **changes) for changes in LEADERS]
    crashed = make_record(NAME, "c", outcome=Outcome.CRASH, reason="no")
    apart = make_record("matmul_9x8x8_f32t_f32t_f32t", provider="iree")
    nothing = find_run_marks([])
    lines = [verdict_line([alone], one, _marks({})) for one in leaders]
    lines += [verdict_line([alone], LEADER, _marks(common)) for common in STATES]
    for records in ([], [alone], [alone, crashed], [alone, apart]):
        lines.append(verdict_line(records, None, nothing))
    both = RunMarks(_marks({"noisy": 57}).states | _marks({"boost": 60}, "cuda:0").states)
    for marks in (_marks({}), _marks({"noisy": 57, "busy": 53}), both):
        lines += run_state_lines(marks)
    golden("sentences", "".join(f"{line}\n" for line in lines))


def _measured(low, high):
    return Measurement(median_ns=100, ci_low_ns=low, ci_high_ns=high, min_ns=1, p95_ns=1,
                       sample_count=9)  # fmt: skip


def test_half_widths_are_as_short_as_they_can_be():
    """Half of the interval, however it lies; none without an interval."""
    shares = {0.0994: "±9.9%", 0.0996: "±10%", 0.1: "±10%", 0.994: "±99%", 12.3: ">100%"}
    for share, text in shares.items():
        assert half_width_label(_measured(100 * (1 - share), 100 * (1 + share))) == text
    assert half_width_label(_measured(99, 103)) == "±2.0%"
    assert relative_half_width(_measured(99, 103)) == pytest.approx(0.02)
    assert relative_half_width(_measured(None, None)) is None


WORDS = st.lists(st.text("abcdxyz0123", min_size=1, max_size=12), min_size=1, max_size=7)


@settings(deadline=None, max_examples=30)
@given(st.lists(WORDS.map("_".join), min_size=1, max_size=12, unique=True), st.integers(8, 40))
def test_short_configurations_fit_and_stay_different(names, width):
    short = shorten_configurations(names, width)
    assert set(short) == set(names)
    assert len(set(short.values())) == len(names)
    assert all(0 < len(text) <= width for text in short.values())
