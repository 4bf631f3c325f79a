from __future__ import annotations

import pytest

from gemmetry.results.palette import log_ticks


@pytest.mark.parametrize("high", [1.02, 1.6, 9.0, 100.0, 1e7])
def test_a_logarithmic_axis_has_ticks(high):
    ticks = log_ticks(6.8, 6.8 * high)
    assert all(6.8 <= tick <= 6.8 * high for tick in ticks)
    assert ticks == sorted(ticks)
    if high >= 1.6:
        assert 4 <= len(ticks) <= 12
