from __future__ import annotations

import math

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference, logical_tensors, to_logical
from gemmetry.numerics.storage import numpy_dtype, smallest_normal, to_float64
from gemmetry.verification.inputs import special as special_inputs

F16 = "matmul_24x20x96_f16t_f16n_f16t"
BF16 = "matmul_24x20x96_bf16n_bf16t_f32n_bias"


def made(make, name):
    operation = parse_operation(name)
    inputs = make(operation, 7)
    for array, spec in zip(inputs, operation.inputs, strict=True):
        assert (array.shape, array.dtype) == (spec.storage_shape, numpy_dtype(spec.dtype))
    return operation, inputs


def test_wide_range_fills_the_exponents():
    _, (lhs, rhs, _) = made(special_inputs.wide_range, BF16)
    sizes = np.abs(to_float64(lhs))
    assert sizes.max() > 2**11 and sizes.min() < 2.0**-11
    assert np.abs(to_float64(rhs)).max() > 2**11
    operation, inputs = made(special_inputs.wide_range, F16)
    assert np.isfinite(compute_reference(operation, inputs).value).all()


@pytest.mark.parametrize("name", [F16, BF16, "batch_matmul_2x8x8x9_f32t_f32t_f32t"])
def test_cancelling_sums_are_zero_or_one_product(name):
    operation, inputs = made(special_inputs.cancellation, name)
    tensors = {role: to_float64(a) for role, a in logical_tensors(operation, inputs).items()}
    left = tensors["lhs"] @ tensors["rhs"]
    if operation.matmul_shape.k % 2 == 0:
        assert np.abs(left).max() < 1e-12
    else:
        products = tensors["lhs"][0, 0] * tensors["rhs"][0, :, 0]
        assert np.abs(products - left[0, 0, 0]).min() < 1e-12
    assert np.median(np.abs(tensors["lhs"]) @ np.abs(tensors["rhs"])) > 3


def test_subnormals_are_subnormal_and_their_sums_are_not_lost():
    operation, inputs = made(special_inputs.subnormals, F16)
    lhs = to_float64(inputs[0])
    assert lhs.min() > 0 and lhs.max() < smallest_normal(operation.signature.lhs)
    value = to_float64(compute_reference(operation, inputs).value)
    assert value.min() > 1e-3 and value.max() < 65504


@pytest.mark.parametrize(
    "name", [F16, "matmul_9x8x6000_e5m2t_e4m3n_f16t", "matmul_9x8x6_bf16t_bf16n_f32t"]
)
def test_every_other_row_overflows(name):
    operation, inputs = made(special_inputs.overflow, name)
    value = np.abs(to_float64(compute_reference(operation, inputs).value))
    largest = operation.signature.result.maximum
    assert (value[0::2] > 1.5 * largest).all()
    assert (value[1::2] < 0.5 * largest).all()
    assert np.isfinite(to_float64(inputs[0])).all() and np.isfinite(to_float64(inputs[1])).all()


@pytest.mark.parametrize(("make", "name"), [
    (special_inputs.overflow, "matmul_9x8x64_e4m3t_e4m3n_f32t"),
    (special_inputs.overflow, "matmul_9x8x64_f64t_f64n_f64t"),
    (special_inputs.overflow, f"{F16}_alpha2"),
    (special_inputs.cancellation, "matmul_9x8x1_f32t_f32n_f32t"),
])  # fmt: skip
def test_none_where_the_formats_have_no_room(make, name):
    assert make(parse_operation(name), 7) is None


SPREADS = (
    F16, "matmul_24x20x96_f16n_f16t_f16n", "batch_matmul_3x7x9x5_f32n_f32t_f32n",
    "batch_matmul_3x7x9x5_f32t_f32n_f32t",
    "conv2d_2x6x5x3_3x2x4_stride2x1_pad0x0_f32nhwc_f32hwcf_f32nhwc",
)  # fmt: skip
BLOCKS = (
    "matmul_9x12x20_e4m3t_e4m3n_bf16n_vs2x8_vs5x8", "matmul_24x20x96_e2m1t_e2m1n_f16t_vs32_e8m0",
    "batch_matmul_3x7x9x40_e2m1t_e2m1n_bf16t_vs16_e4m3",
)  # fmt: skip


@pytest.mark.parametrize(("name", "value", "holders"), [
    *((name, value, [1, 1]) for value in (math.nan, math.inf) for name in SPREADS),
    *((name, math.nan, [0, 0, 1, 1]) for name in BLOCKS),
])  # fmt: skip
def test_spread_is_what_the_reference_shows(name, value, holders):
    operation = parse_operation(name)
    inputs = make_inputs(operation, distribution="offset_uniform", seed=3)
    case = special_inputs.spread(operation, inputs, value)
    assert [int((~np.isfinite(to_float64(array))).sum()) for array in case.inputs] == holders
    with np.errstate(invalid="ignore"):
        reference = compute_reference(operation, case.inputs).value
    stored = to_logical(~np.isfinite(reference), operation.output).reshape(-1)
    np.testing.assert_array_equal(np.flatnonzero(stored), np.sort(case.must))
    np.testing.assert_array_equal(case.must, case.may)
    assert 0 < case.must.size < stored.size
    assert all(np.isfinite(to_float64(array)).all() for array in inputs)


def test_taps_in_the_padding_may_show():
    operation = parse_operation("conv2d_1x5x5x3_3x3x4_stride1x1_pad1x1_f32nhwc_f32hwcf_f32nhwc")
    inputs = make_inputs(operation, distribution="offset_uniform", seed=3)
    case = special_inputs.spread(operation, inputs, math.nan)
    assert set(case.must) <= set(case.may)


@pytest.mark.parametrize(("check", "suffix", "words"), [
    ("nan_spreads", "", "e2m1 has no NaN"), ("nan_spreads", "_vs32_e8m0", ""),
    ("inf_spreads", "_vs32_e8m0", "no infinity"),
])  # fmt: skip
def test_numbers_of_four_bits_have_no_nan_but_their_factors_do(check, suffix, words):
    operation = parse_operation(f"matmul_8x8x32_e2m1t_e4m3n_f32t{suffix}")
    found = special_inputs.objection(check, operation, ())
    assert words in found and bool(found) is bool(words)
