from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.dispatches.analysis import relative_half_width
from gemmetry.dispatches.labels import (
    difference_legend,
    difference_sign,
    dtype_label,
    failed_checks,
    format_ratio,
    operation_label,
    operation_title,
    reason_line,
    shorten_configurations,
    unapplied_checks,
)
from gemmetry.dispatches.labels import half_width_label as format_half_width
from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import Measurement
from gemmetry.statistics.comparison import Difference


@pytest.mark.parametrize(
    ("name", "title", "label"),
    [
        ("matmul_3x4x5_f16t_f16n_f32t", "matmul 3×4×5  f16→f32 tn", "3×4×5 tn"),
        ("batch_matmul_2x3x4x5_f32t_f32t_f32t", "batch_matmul 2×3×4×5  f32 tt", "batch 2×3×4×5"),
        (
            "matmul_splitk_8x8x64_f32t_f32t_f32t_slices4",
            "matmul_splitk 8×8×64  f32 tt  4 slices",
            "8×8×64 4 slices",
        ),
        (
            "matmul_8x8x8_e4m3t_e5m2n_bf16t_scalerow_alpha0p5_beta1_bias_relu",
            "matmul 8×8×8  e4m3×e5m2→bf16 tn  scale per row, alpha 0.5, beta 1, bias+relu",
            "8×8×8 tn scale per row, alpha 0.5, beta 1, bias+relu",
        ),
        (
            "conv2d_1x58x58x64_3x3x128_stride2x2_pad1x1_f32nhwc_f32hwcf_f32nhwc",
            "conv2d 1×58×58×64 ∗ 3×3×128 stride 2×2 pad 1×1  f32 nhwc_hwcf",
            "conv 1×58×58×64 ∗ 3×3×128 stride 2×2 pad 1×1",
        ),
    ],
)
def test_titles_and_labels(name, title, label):
    operation = parse_operation(name)
    assert operation_title(operation) == title
    assert operation_label(operation) == label


def test_unusual_accumulator_is_reported():
    assert dtype_label(parse_operation("matmul_8x8x8_f16t_f16t_f16t_accf16").signature) == (
        "f16 acc f16"
    )


def test_what_has_no_interval_has_no_half_width():
    m = Measurement(
        median_ns=100, ci_low_ns=None, ci_high_ns=None, min_ns=1, p95_ns=1, sample_count=1
    )
    assert relative_half_width(m) is None
    assert format_half_width(m) == "n/a"


def test_speeds_that_were_not_shown_to_differ_have_a_sign_and_a_legend():
    signs = {one: difference_sign(one) for one in (None, *Difference)}
    assert [one for one, sign in signs.items() if sign] == [
        Difference.NONE_SHOWN, Difference.UNDECIDED,
    ]  # fmt: skip
    assert signs[Difference.NONE_SHOWN] != signs[Difference.UNDECIDED]
    assert difference_legend([Difference.SLOWER]) == []
    [(sign, text)] = difference_legend([Difference.UNDECIDED, Difference.FASTER])
    assert sign == signs[Difference.UNDECIDED]
    assert text.startswith("undecided")


def test_half_width_is_half_of_the_interval_however_it_lies():
    m = Measurement(median_ns=100, ci_low_ns=99, ci_high_ns=103, min_ns=1, p95_ns=1, sample_count=9)
    assert format_half_width(m) == "±2.0%"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0994, "±9.9%"), (0.0996, "±10%"), (0.1, "±10%"), (0.994, "±99%"), (12.3, ">100%")],
)
def test_half_widths_are_as_short_as_they_can_be(share, text):
    m = Measurement(median_ns=100, ci_low_ns=100 * (1 - share), ci_high_ns=100 * (1 + share),
                    min_ns=1, p95_ns=1, sample_count=9)  # fmt: skip
    assert format_half_width(m) == text


def test_ratios_of_a_column_have_two_decimals():
    assert [format_ratio(v) for v in (None, 0.5, 1.234, 12.34, 123.4)] == [
        "–", "0.50×", "1.23×", "12.34×", "123×",
    ]  # fmt: skip


def test_shared_tokens_are_left_out():
    names = ["tile_config_128x128_32x5_tensorcore", "tile_config_64x64_64x5_tensorcore", "default"]
    assert shorten_configurations(names, 12) == {
        names[0]: "128x128_32x5",
        names[1]: "64x64_64x5",
        "default": "default",
    }
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


def test_unapplied_checks_are_counted_unless_the_operation_is_the_cause(failed_result_set):
    assert unapplied_checks(failed_result_set.records * 2) == {"written": 2}


def test_failed_checks_leave_out_what_the_reason_shows(failed_result_set):
    (record,) = failed_result_set.records
    assert failed_checks(record.verdict) == {"integers": "9 elements are wrong"}


def test_reasons_are_reported_with_their_numbers(make_record):
    """What verification says of a wrong kernel is not cut in front of got and expected."""
    reason = (
        "tail_shapes: " + "how it is wrong, " * 12 + "first at [0, 0]: got 96.04, expected 117.2"
    )
    assert reason_line(make_record("matmul_8x8x8_f32t_f32t_f32t", reason=reason)) == reason
