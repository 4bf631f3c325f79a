from __future__ import annotations

import agents
import pytest


def test_a_devices_rate_counts_whole_groups():
    """Records of a group arrive together: 50 at a time, each second."""
    times = [second + n / 1e4 for second in range(5) for n in range(50)]
    assert agents._rate(times) == pytest.approx(50)
    assert agents._rate(times[:50]) == 0, "one group has no time between ends"


def test_a_small_run():
    found = agents.measure(2, 100, 1.0, "loopback")
    assert found.whole_s > 0.05, "two devices, each with 50 launches of a millisecond"
    assert 0 < found.driver_s < found.whole_s
