from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from gemmetry.history.api import load
from gemmetry.history.folder import StoredHistory
from gemmetry.history.show import BARS, print_check, sparkline


def test_a_line_of_bars_spans_its_values():
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], 8) == BARS
    assert sparkline([5.0] * 4, 8) == BARS[0] * 4
    assert sparkline([1.0, math.nan, 2.0], 8) == f"{BARS[0]}·{BARS[-1]}"
    assert sparkline([], 8) == ""
    assert sparkline([math.nan] * 3, 8) == "···"


def test_neighbours_share_a_bar_where_there_are_too_many():
    assert sparkline([1.0] * 50 + [2.0] * 50, 10) == BARS[0] * 5 + BARS[-1] * 5
    assert len(sparkline(list(range(1000)), 33)) == 33


@pytest.mark.parametrize(("factor", "ending"), [
    (1.01, "No new change within the latest 30 runs; 1 judged to be noise; 0 older"),
    (1.1, "1 new change within the latest 30 runs, 1 of them fails; 0 older"),
])  # fmt: skip
def test_noise_is_counted_and_not_listed(histories, factor, ending):
    synthetic = histories.SyntheticHistory(noise=0.001, host_noise=0.001)
    synthetic.slow(factor, 40, provider="triton", shape=2)
    stored = StoredHistory(runs={histories.DEVICE: synthetic.entries()})
    printed = io.StringIO()
    print_check(load(stored, latest=30, threshold=0.02), Console(file=printed, width=80))
    lines = printed.getvalue().splitlines()
    assert lines[-1] == ending
    assert ("triton:" in "".join(lines)) is (factor > 1.02)
