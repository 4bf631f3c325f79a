from __future__ import annotations

from gemmetry.measurement.launches import measure_overhead


def test_median_of_empty_calls(make_device):
    assert measure_overhead(make_device(empty_ns=120.0)) == 120.0
