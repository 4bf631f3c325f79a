"""Figures of sweeps as texts."""

from __future__ import annotations

import pytest

from gemmetry.domain.units import format_change
from gemmetry.statistics.comparison import compare_pairs
from gemmetry.sweeps.report import gemm_label, interval_text, longer


@pytest.mark.parametrize(
    ("ratio", "text", "duration"),
    [
        (1.031, "+3.1 %", "3.1 % longer"),
        (0.969, "-3.1 %", "3.1 % less"),
        (10.99, "+999.0 %", "999.0 % longer"),
        (236.1, "×236", "236 times as long"),
    ],
)
def test_large_ratios_are_not_given_in_percent(ratio, text, duration):
    assert format_change(ratio) == text
    assert longer(ratio) == duration


def test_an_interval_of_two_pairs_reads_well():
    narrow, wide = (compare_pairs([100.0] * 2, pair).interval for pair in ([95, 89], [80, 106]))
    assert "%" in interval_text(*narrow)
    assert interval_text(*wide) == interval_text(0.004, 236.148)
    assert not any(digit in interval_text(*wide) for digit in "0123456789")
    assert interval_text(20, 236.148) == " (×20 to ×236)"
    assert interval_text(None, None) == ""


def gemm(kernel, m=64):
    return {"kernel": kernel, "m": m, "n": 64, "k": 64, "batch": 1}


def test_the_kernel_is_named_where_a_shape_has_two_and_the_layout_where_a_kernel_has():
    entries = [gemm("one_kernel_tile_128x128"), gemm("one_kernel_tile_256x128"), gemm("other", 32)]
    first, second, other = (gemm_label(one, entries) for one in entries)
    assert first != second
    assert entries[0]["kernel"] in first and entries[1]["kernel"] in second
    assert "other" not in other
    assert gemm_label(entries[0]) == first.partition(" by ")[0]
    entries = [{**gemm("one"), "dtype": "f32", "layout": layout} for layout in ("tt", "tn")]
    labels = [gemm_label(one, entries) for one in entries]
    assert [label.split()[1:] for label in labels] == [["tt"], ["tn"]]
