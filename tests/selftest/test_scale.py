"""Kernels that are right on ordinary numbers, and wrong with scales, at the ends of f16, or with
NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.verification.inputs.scaled import scaled_along_k


@pytest.mark.parametrize("slug", ["columns_balanced", "rows_scaled_gently"])
def test_scales_that_leave_every_number_normal_are_right(plant: Any, slug: str) -> None:
    bench = plant(slug)
    bench.use(scaled_along_k(bench.operation, bench.inputs))
    assert bench.is_right()


@pytest.mark.parametrize("slug", ["f16_inputs_flushed", "f16_saturates", "overflows_upwards"])
def test_f16_is_right_between_its_ends(plant: Any, slug: str) -> None:
    bench = plant(slug)
    assert bench.is_right()
    size = np.float16(2.0**-15 if slug == "f16_inputs_flushed" else 2.0**14)
    bench.use([array * size for array in bench.inputs])
    with np.errstate(over="ignore"):
        assert not bench.is_right() or slug == "f16_inputs_flushed"


def test_nan_stays_in_a_workspace_that_is_cleared_by_multiplying(plant: Any) -> None:
    bench = plant("workspace_times_zero")
    clean = bench.launch()
    assert bench.is_right()
    bench.buffer("lhs")[3, 4] = np.nan
    assert np.isnan(bench.launch()[3]).all()
    bench.buffer("lhs")[3, 4] = 1.0
    assert np.isnan(bench.launch()[3]).all()
    assert np.isfinite(clean).all()


@pytest.mark.parametrize("slug", ["nan_cleaned_in_place", "infinity_cleaned_in_place"])
def test_inputs_are_cleaned_in_place(plant: Any, slug: str) -> None:
    bench = plant(slug)
    role, value = ("lhs", np.nan) if slug.startswith("nan") else ("rhs", np.inf)
    bench.buffer(role)[3, 4] = value
    bench.launch()
    assert np.isfinite(bench.buffer(role).astype(np.float32)).all()
