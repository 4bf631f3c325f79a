from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.statistics.intervals import quantile
from gemmetry.traces.gemms import peak_flops_per_s, quantile_of_sorted


def test_peaks_are_found_by_product_and_format():
    assert peak_flops_per_s("NVIDIA H200", "e4m3") == 1978.9e12
    assert peak_flops_per_s("NVIDIA H200", "e2m1") is None
    assert peak_flops_per_s("NVIDIA H200", None) is None
    assert peak_flops_per_s("", "bf16") is None


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50), st.floats(0, 1))
@settings(max_examples=100)
def test_quantiles_are_those_of_the_statistics(samples, share):
    found = quantile_of_sorted(np.sort(np.array(samples)), share)
    assert found == pytest.approx(quantile(samples, share), rel=1e-12, abs=1e-9)
