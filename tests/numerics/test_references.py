from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import (
    GELU_LIPSCHITZ,
    compute_reference,
    erf,
    exact_product,
    gelu,
    logical_tensors,
    operand_sizes,
)
from gemmetry.numerics.storage import to_float64


def inputs_of(name, distribution="normal", seed=42):
    operation = parse_operation(name)
    return operation, make_inputs(operation, distribution=distribution, seed=seed)


def exact_element(operation, inputs, index):
    """One element of a (batch) matmul with epilogue, in exact arithmetic up to relu."""
    tensors = logical_tensors(operation, inputs)
    *lead, row, column = index
    lead = tuple(lead)
    lhs, rhs = to_float64(tensors["lhs"])[lead], to_float64(tensors["rhs"])[lead]
    total = sum(Fraction(x) * Fraction(y) for x, y in zip(lhs[row], rhs[:, column], strict=True))
    s = operation.signature
    total *= Fraction(s.alpha)
    for role in ("scale_a", "scale_b"):
        if role in tensors:
            full = np.broadcast_to(to_float64(tensors[role]), operation.output.shape)
            total *= Fraction(float(full[index]))
    if s.beta:
        total += Fraction(s.beta) * Fraction(float(to_float64(tensors["addend"])[index]))
    for step in s.epilogue:
        if step == "relu":
            total = max(total, Fraction(0))
        elif step == "bias":
            total += Fraction(float(to_float64(tensors["bias"])[column]))
        elif step == "residual":
            total += Fraction(float(to_float64(tensors["residual"])[index]))
    return float(total)


@pytest.mark.parametrize(
    "name",
    [
        "matmul_7x5x33_f32t_f32t_f32t",
        "matmul_7x5x33_bf16n_bf16n_bf16n",
        "matmul_7x5x33_f16t_f16n_f32n_alpha0p5_betam2",
        "batch_matmul_3x7x5x9_f32n_f32t_f32n_bias_relu_residual",
        "matmul_7x5x33_e4m3t_e4m3n_bf16t_scalerow",
        "matmul_7x5x33_e5m2t_e4m3n_f16t_scaletensor_bias",
        "matmul_splitk_7x5x32_f16t_f16t_f32t_slices4",
        "matmul_7x5x33_f64t_f64n_f64t",
        "matmul_7x5x33_s8t_s8n_s32n_bias_relu",
    ],
)
def test_agrees_with_exact_arithmetic(name):
    operation, inputs = inputs_of(name)
    reference = compute_reference(operation, inputs)
    assert reference.value.shape == operation.output.shape
    for index in np.ndindex(operation.output.shape):
        expected = exact_element(operation, inputs, index)
        assert reference.value[index] == pytest.approx(expected, rel=1e-13, abs=1e-13)
        assert reference.magnitude[index] >= abs(expected) * (1 - 1e-12)


@settings(max_examples=25)
@given(st.integers(1, 300), st.integers(0, 2**32))
def test_integers_are_exact(k, seed):
    operation, inputs = inputs_of(f"matmul_3x4x{k}_s8t_s8n_s32t", "offset_uniform", seed)
    lhs, rhs = inputs[0].astype(object), inputs[1].astype(object).T
    reference = compute_reference(operation, inputs)
    assert reference.value.dtype == np.int64
    assert (reference.value == lhs @ rhs).all()


def test_convolution_agrees_with_loops():
    name = "conv2d_2x6x5x3_3x2x4_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias"
    operation, (image, kernel, bias) = inputs_of(name)
    c = operation.shape
    expected = np.zeros(operation.output.shape)
    for n, p, q, f in np.ndindex(expected.shape):
        total = float(bias[f])
        for r, s, channel in np.ndindex(c.r, c.s, c.c):
            y, x = p * c.stride_h + r - c.pad_h, q * c.stride_w + s - c.pad_w
            if 0 <= y < c.h and 0 <= x < c.w:
                total += float(image[n, y, x, channel]) * float(kernel[r, s, channel, f])
        expected[n, p, q, f] = total
    reference = compute_reference(operation, (image, kernel, bias))
    np.testing.assert_allclose(reference.value, expected, rtol=1e-12, atol=1e-12)
    assert (reference.magnitude >= np.abs(reference.value)).all()


def test_gelu_is_applied_and_grows_the_magnitude():
    operation, inputs = inputs_of("matmul_4x4x16_f32t_f32t_f32t_gelu")
    plain, plain_inputs = inputs_of("matmul_4x4x16_f32t_f32t_f32t")
    reference, before = compute_reference(operation, inputs), compute_reference(plain, plain_inputs)
    expected = [0.5 * x * math.erfc(-x / math.sqrt(2)) for x in before.value.flat]
    np.testing.assert_allclose(reference.value.ravel(), expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(reference.magnitude, before.magnitude * 1.13)


def test_magnitude_is_the_product_of_absolute_values():
    operation, inputs = inputs_of("matmul_16x8x300_bf16t_bf16t_f32t")
    lhs, rhs = (np.abs(to_float64(array)) for array in inputs)
    magnitude = compute_reference(operation, inputs).magnitude
    assert (magnitude >= lhs @ rhs).all()
    np.testing.assert_allclose(magnitude, lhs @ rhs, rtol=1e-4)


def test_extra_rounding_counts_what_an_unfused_epilogue_rounds():
    operation, inputs = inputs_of("matmul_4x4x16_bf16t_bf16t_bf16t_bias_relu_residual")
    plain, plain_inputs = inputs_of("matmul_4x4x16_bf16t_bf16t_bf16t")
    product = compute_reference(plain, plain_inputs).value
    after_bias = np.maximum(product + to_float64(inputs[2]), 0)
    extra = compute_reference(operation, inputs).extra_rounding
    np.testing.assert_allclose(extra, np.abs(product) + after_bias, rtol=1e-12)
    relu, relu_inputs = inputs_of("matmul_4x4x16_bf16t_bf16t_bf16t_relu")
    assert compute_reference(relu, relu_inputs).extra_rounding is None


def test_injected_product_is_used_for_everything():
    operation, inputs = inputs_of("matmul_4x6x16_f16n_f16t_f16t")
    shapes = []

    def multiply(a, b):
        shapes.append((a.shape, b.shape, a.dtype))
        return to_float64(a) @ to_float64(b)

    injected = compute_reference(operation, inputs, matmul=multiply)
    # In the operands' own format, as a device converts them itself.
    assert shapes == [((4, 16), (16, 6), np.float16)] * 2
    np.testing.assert_allclose(injected.value, compute_reference(operation, inputs).value)


def test_rows_cover_the_reference_once():
    operation, inputs = inputs_of("batch_matmul_3x5x4x8_f32t_f32t_f32t_bias")
    reference = compute_reference(operation, inputs)
    pieces = list(reference.rows(9))
    assert [part.start for part, _ in pieces] == list(range(0, 15, 2))
    joined = np.concatenate([piece.value for _, piece in pieces])
    assert (joined == reference.value.reshape(15, 4)).all()
    assert all(piece.extra_rounding.shape == piece.value.shape for _, piece in pieces)


def test_exact_product_uses_float32_only_where_sums_fit(monkeypatch):
    seen = []
    real = np.matmul

    def multiply(a, b):
        seen.append(a.dtype)
        return real(a, b)

    monkeypatch.setattr(np, "matmul", multiply)
    for name in ("matmul_4x4x64_bf16t_bf16t_bf16t", "matmul_4x4x64_f64t_f64t_f64t",
                 "matmul_4x4x64_s8t_s8t_s32t"):  # fmt: skip
        operation, inputs = inputs_of(name, "integers")
        product = exact_product(operation, inputs, multiply)
        tensors = logical_tensors(operation, inputs)
        exact = to_float64(tensors["lhs"]) @ to_float64(tensors["rhs"])
        assert (product == exact).all()
    assert seen == [np.float32, np.float64, np.float64]


def test_sizes_of_the_operands_are_kept_for_bounds_by_norm():
    operation, inputs = inputs_of("matmul_7x5x33_e4m3t_e4m3n_bf16t_scalerow_alpham3_gelu")
    sizes = compute_reference(operation, inputs).sizes
    arrays = {
        spec.role: np.abs(to_float64(array)).max()
        for spec, array in zip(operation.inputs, inputs, strict=True)
    }
    assert sizes.lhs == arrays["lhs"] and sizes.rhs == arrays["rhs"]
    assert sizes.scale == pytest.approx(3 * arrays["scale_a"] * arrays["scale_b"] * 1.13)
    assert sizes == operand_sizes(operation, inputs)
    positive, its_inputs = inputs_of("matmul_4x4x16_f32t_f32t_f32t", "offset_uniform")
    assert compute_reference(positive, its_inputs).sizes.scale == 1.0


def test_parts_share_what_the_whole_shares():
    operation, inputs = inputs_of("matmul_16x8x30_bf16t_bf16t_f32t", "offset_uniform")
    reference = compute_reference(operation, inputs)
    assert reference.magnitude is reference.value
    assert reference.nbytes == 16 * 8 * 8
    _, piece = next(reference.rows(16))
    assert piece.magnitude is piece.value
    assert piece.sizes == reference.sizes
    assert reference.part(slice(3, 5)).value.shape == (2, 8)


def test_erf_is_accurate_to_float64():
    ends = [0.0, -0.0, 1e-300, 5.9999, 6.0, 40.0, np.inf, -np.inf, 1.0]
    points = np.concatenate([np.linspace(-7, 7, 20_001), ends]).reshape(-1, 10)
    expected = np.vectorize(math.erf)(points)
    assert np.abs(erf(points) - expected).max() < 4e-16
    assert np.isnan(erf(np.array([np.nan]))[0])


def test_gelu_matches_its_definition():
    points = np.linspace(-10, 10, 4001)
    expected = [0.5 * x * math.erfc(-x / math.sqrt(2)) for x in points]
    assert np.abs(gelu(points) - expected).max() < 2e-15
    assert gelu(np.array([-np.inf, np.inf])).tolist() == [0.0, np.inf]


def test_lipschitz_constant_is_tight():
    points = np.linspace(-8, 8, 200_001)
    slopes = np.abs(np.diff(gelu(points)) / np.diff(points))
    assert slopes.max() < GELU_LIPSCHITZ < slopes.max() * 1.002
