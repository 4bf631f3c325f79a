"""How a row of the catalogue becomes a kernel on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.selftest.emulator import TiledGemm, given, instead, kernel_of, result, where
from gemmetry.selftest.provider import Carrier, all_mutants

OPERATION = parse_operation("matmul_16x16x16_f32t_f32t_f32t")
ONE = np.eye(16, dtype=np.float32)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (given("store", lambda g, tile, block: -block), -ONE),
        (result("load_a", lambda g, block, tile, step: block + tile.row), ONE),
        (instead("rounded", lambda g, values: values * g.k), 16 * ONE),
        (where("store", lambda g, tile, block: g.launches > 1), 0 * ONE),
    ],
)
def test_a_change_of_a_stage_makes_a_kernel(kernel: type[TiledGemm], expected: Any) -> None:
    output = np.zeros_like(ONE)
    kernel(OPERATION, (16, 16, 16)).launch([ONE, ONE], output)
    assert np.array_equal(output, expected)


def test_every_row_of_the_host_names_a_kernel_with_its_attributes() -> None:
    for item in (one for one in all_mutants() if one.carrier is Carrier.HOST):
        kernel = kernel_of(item)
        assert issubclass(kernel, TiledGemm), item.configuration
        for name, value in item.recipe.attributes.items():
            usual = getattr(kernel.__mro__[1], name)
            assert getattr(kernel, name) == value != usual, item.configuration
