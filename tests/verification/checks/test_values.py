"""Right kernels pass on every kind of inputs; each kind shows a bug that others hide."""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np
import pytest

from gemmetry.numerics.storage import to_float32, to_float64
from gemmetry.verification import context as context_module
from gemmetry.verification.checks import CheckOutcome
from gemmetry.verification.checks import memory as values
from gemmetry.verification.inputs import special

judge_subnormals = partial(values.judge_special, name="subnormals", make=special.subnormals)
judge_overflow = partial(values.judge_special, name="overflow", make=special.overflow)
CHECKS = (
    values.check_values,
    values.check_zero_mean,
    values.check_same_sign,
    values.check_wide_range,
    values.check_cancellation,
    judge_subnormals,
    judge_overflow,
)

NAMES = [
    "matmul_12x10x64_f32t_f32n_f32t",
    "matmul_12x10x64_bf16t_bf16n_bf16n_alpha0p5_beta2_bias_relu",
    "matmul_12x10x64_f16t_f16n_f16t",
    "matmul_12x10x64_e5m2t_e4m3n_f16t_scalerow",
    "matmul_12x10x64_e4m3t_e4m3n_e4m3t",
    "batch_matmul_3x12x10x63_f16n_f16t_f32t_gelu",
    "matmul_12x10x64_f64t_f64t_f64t",
    "matmul_12x10x64_s8t_s8t_s32t",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", CHECKS)
def test_right_kernels_pass(context_of, name, check):
    assert check(context_of(name)).outcome in (CheckOutcome.PASSED, CheckOutcome.NOT_APPLICABLE)


def product(tensors, change=lambda values: values):
    with np.errstate(all="ignore"):
        return to_float64(to_float32(change(tensors["lhs"])) @ to_float32(change(tensors["rhs"])))


def flushed(array):
    tiny = float(ml_dtypes.finfo(array.dtype).smallest_normal)
    return np.where(np.abs(array) < tiny, array.dtype.type(0), array)


def test_flushed_subnormals_show(context_of):
    name = "matmul_12x10x64_f16t_f16n_f16t"
    context = context_of(name, kernel=lambda o, t: product(t, flushed))
    assert values.check_values(context).outcome is CheckOutcome.PASSED
    assert judge_subnormals(context).is_failure


def test_saturation_in_place_of_overflow_shows(context_of):
    def saturating(operation, tensors):
        return np.clip(product(tensors), -65504.0, 65504.0)

    context = context_of("matmul_12x10x64_f16t_f16n_f16t", kernel=saturating)
    assert values.check_values(context).outcome is CheckOutcome.PASSED
    assert judge_overflow(context).is_failure


def test_a_narrow_range_shows(context_of):
    def through_e4m3(array):
        return array.astype(np.float32).clip(-448, 448)

    context = context_of(
        "matmul_12x10x64_f32t_f32n_f32t", kernel=lambda o, t: product(t, through_e4m3)
    )
    assert values.check_values(context).outcome is CheckOutcome.PASSED
    assert values.check_wide_range(context).is_failure


def test_rounded_parts_show_where_they_cancel(context_of):
    def bf16_parts(operation, tensors):
        a, b = to_float32(tensors["lhs"]), to_float32(tensors["rhs"])
        parts = [(a[:, i::3] @ b[i::3]).astype(ml_dtypes.bfloat16) for i in range(3)]
        return sum(to_float64(part) for part in parts)

    context = context_of("matmul_12x10x64_bf16t_bf16n_bf16t", kernel=bf16_parts)
    assert values.check_cancellation(context).is_failure


def test_large_products_are_left_to_the_device(context_of, monkeypatch):
    context = context_of("matmul_8x6x16_f32t_f32t_f32t")
    assert context.matmul is np.matmul
    monkeypatch.setattr(context_module, "HOST_PRODUCT_FLOPS", 100)
    seen = []

    def multiply(a, b):
        seen.append(a.shape)
        return to_float64(a) @ to_float64(b)

    context = context_of("matmul_8x6x16_f32t_f32t_f32t")
    monkeypatch.setattr(context.launcher.device, "float64_matmul", lambda: multiply)
    assert values.check_zero_mean(context).outcome is CheckOutcome.PASSED
    assert seen
