"""Figures of sweeps as texts."""

from __future__ import annotations

import pytest

from gemmetry.domain.units import format_change
from gemmetry.reports.sweeps.values import interval_text, longer


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
    assert interval_text(0.004, 236.148) == " (too few runs, or too different ones)"
    assert interval_text(20, 236.148) == " (×20 to ×236)"
    assert interval_text(None, None) == ""
