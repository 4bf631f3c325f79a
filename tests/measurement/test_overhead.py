from __future__ import annotations

from gemmetry.measurement.launches import measure_overhead


def test_median_of_empty_calls(kit):
    assert measure_overhead(kit.device(empty_ns=120.0)) == 120.0
