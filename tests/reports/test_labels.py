"""Names and sentences of every report."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.dispatches.analysis import RunMarks, RunState, find_run_marks, relative_half_width
from gemmetry.dispatches.comparison import Leader
from gemmetry.dispatches.labels import (
    difference_legend,
    difference_sign,
    failed_checks,
    format_ratio,
    half_width_label,
    reason_line,
    run_state_lines,
    shorten_configurations,
    unapplied_checks,
    verdict_line,
)
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Measurement
from gemmetry.statistics.comparison import Difference

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
    state = RunState(target=device, device=device, measured=63, common=common,
                     usual_half_width=0.11)  # fmt: skip
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


def test_speeds_that_were_not_shown_to_differ_have_a_sign_and_a_legend():
    signs = {one: difference_sign(one) for one in (None, *Difference)}
    shown = {one: sign for one, sign in signs.items() if sign}
    assert shown == {Difference.NONE_SHOWN: "≈", Difference.UNDECIDED: "≷"}
    assert difference_legend([Difference.SLOWER]) == []
    [(sign, _)] = difference_legend([Difference.UNDECIDED, Difference.FASTER])
    assert sign == "≷"


def test_ratios_of_a_column_have_two_decimals():
    assert [format_ratio(v) for v in (None, 0.5, 1.234, 12.34, 123.4)] == [
        "–", "0.50×", "1.23×", "12.34×", "123×",
    ]  # fmt: skip


def test_shared_tokens_are_left_out():
    names = ["tile_config_128x128_32x5_tensorcore", "tile_config_64x64_64x5_tensorcore", "default"]
    short = dict(zip(names, ("128x128_32x5", "64x64_64x5", "default"), strict=True))
    assert shorten_configurations(names, 12) == short
    assert shorten_configurations(names, 60)[names[0]] == names[0]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.from_regex(r"[a-z0-9]{1,12}(_[a-z0-9]{1,12}){0,6}", fullmatch=True),
             min_size=1, max_size=12, unique=True),
    st.integers(8, 40),
)  # fmt: skip
def test_short_configurations_fit_and_stay_different(names, width):
    short = shorten_configurations(names, width)
    assert set(short) == set(names)
    assert len(set(short.values())) == len(names)
    assert all(0 < len(text) <= width for text in short.values())


def test_checks_that_did_not_apply_or_failed(failed_result_set):
    """Those of the operation itself are not counted; the reason's own is not repeated."""
    (record,) = failed_result_set.records
    assert unapplied_checks([record] * 2) == {"written": 2}
    assert failed_checks(record.verdict) == {"integers": "9 elements are wrong"}


def test_reasons_are_reported_with_their_numbers(make_record):
    """What verification says of a wrong kernel is not cut in front of got and expected."""
    reason = "tail_shapes: " + "how it is wrong, " * 12 + "first at [0, 0]: got 96.04"
    assert reason_line(make_record(NAME, reason=reason)) == reason
