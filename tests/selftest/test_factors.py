"""Factors of mutants: right orders agree with the reference, wrong ones do not."""

from __future__ import annotations

from typing import Any

import pytest

from gemmetry.selftest import scale as factors
from gemmetry.selftest.provider import Carrier, all_mutants

SLUGS = [item.slug for item in all_mutants() if item.carrier is Carrier.HOST and item.number == 65]
SHOWS_ELSEWHERE = {"alpha_as_integer", "alpha_without_sign", "beta_taken_for_one", "alpha_in_bf16"}
"""With other factors, or on exact inputs."""


@pytest.mark.parametrize(
    "kernel",
    [
        factors.FoldsAlphaIntoA,
        factors.FoldsAlphaIntoB,
        factors.AlphaPerStep,
        factors.BeginsWithAddend,
        factors.BeginsWithQuotient,
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "matmul_33x65x50_f32t_f32t_f32t_alpha0p1_beta1p7",
        "matmul_33x65x50_f64t_f64n_f64t_alpham2",
        "batch_matmul_3x33x30x70_f16t_f16n_f32t_alpha0_beta2_bias",
    ],
)
def test_every_order_is_right(assert_right: Any, kernel: Any, name: str) -> None:
    assert_right(kernel, name)


def test_scales_may_be_multiplied_into_operands(assert_right: Any) -> None:
    assert_right(factors.FoldsScalesIntoOperands, "matmul_33x30x70_e4m3t_e4m3n_bf16t_scalerow")
    with_factors = "matmul_33x30x70_e4m3t_e4m3n_bf16t_scalerow_alpham2_beta0p5"
    assert_right(factors.FoldsScalesIntoOperands, with_factors)


@pytest.mark.parametrize("slug", SLUGS)
def test_wrong_factors_show_where_they_differ(plant: Any, slug: str) -> None:
    assert plant(slug).is_right() is (slug in SHOWS_ELSEWHERE)
