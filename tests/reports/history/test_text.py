from __future__ import annotations

import math

from gemmetry.reports.history.text import BARS, sparkline


def test_a_line_of_bars_spans_its_values():
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], 8) == BARS
    assert sparkline([5.0] * 4, 8) == BARS[0] * 4
    assert sparkline([1.0, math.nan, 2.0], 8) == f"{BARS[0]}·{BARS[-1]}"
    assert sparkline([], 8) == ""
    assert sparkline([math.nan] * 3, 8) == "···"


def test_neighbours_share_a_bar_where_there_are_too_many():
    assert sparkline([1.0] * 50 + [2.0] * 50, 10) == BARS[0] * 5 + BARS[-1] * 5
    assert len(sparkline(list(range(1000)), 33)) == 33
