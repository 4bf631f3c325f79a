from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.storage import to_float64
from gemmetry.selftest.provider import all_mutants

HERE = [
    item
    for item in all_mutants()
    if parse_operation(item.operation).signature.blocks and item.number in (21, 41, 42, 43, 44)
]


def test_every_kind_of_factor_has_mutants() -> None:
    scalings = {str(parse_operation(item.operation).signature.scaling) for item in HERE}
    assert scalings == {"vs32_e8m0", "vs16_e4m3", "vs1x128", "vs1x128_vs128x128"}


@pytest.mark.parametrize(
    ("slug", "factor"), [("block_scales_in_f16", 2.0**40), ("block_scales_as_exponents", 1.625)]
)
def test_rounded_factors_do_not_show_on_small_powers_of_two(
    plant: Any, slug: str, factor: float
) -> None:
    bench = plant(slug)
    assert bench.is_right()
    inputs = list(bench.inputs)
    place = [spec.role for spec in bench.operation.inputs].index("scale_a")
    inputs[place] = (to_float64(inputs[place]) * factor).astype(inputs[place].dtype)
    bench.use(tuple(inputs))
    assert bench.wrong().any()


def test_a_number_in_place_of_nan_shows_only_with_nan(plant: Any) -> None:
    bench = plant("e8m0_nan_as_number")
    assert bench.is_right()
    inputs = list(make_inputs(bench.operation, distribution="uniform_signed", seed=2))
    place = [spec.role for spec in bench.operation.inputs].index("scale_a")
    inputs[place] = np.array(inputs[place])
    inputs[place][0, 0] = np.nan
    bench.use(tuple(inputs))
    assert bench.wrong().any()
