from __future__ import annotations

import numpy as np
import pytest
import round_spread

from gemmetry.statistics.intervals import half_width, rounds_interval


def test_alike_rounds_still_need_the_least_number_of_them() -> None:
    assert round_spread.seconds_needed([0.0, 0.001], 0.05) == pytest.approx(2 * 12 * 0.05)


def test_the_rounds_needed_give_the_usual_interval() -> None:
    """Normal rounds of which this many seconds would be taken have intervals of about ±0.5 %."""
    count = round(round_spread.seconds_needed([0.01], 1.0))
    rng = np.random.default_rng(5)
    widths = []
    for _ in range(60):
        medians = np.exp(rng.normal(0, 0.01, count))
        interval, _ = rounds_interval([(one, one) for one in medians])
        widths.append(half_width(interval, 1.0))
    assert np.mean(widths) == pytest.approx(0.005, rel=0.35)
