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
    tensors = {role: to_float64(x) for role, x in logical_tensors(operation, inputs).items()}
    *lead, row, column = index
    lhs, rhs = (tensors[role][tuple(lead)] for role in ("lhs", "rhs"))
    total = sum(Fraction(x) * Fraction(y) for x, y in zip(lhs[row], rhs[:, column], strict=True))

    def here(role):
        return Fraction(float(np.broadcast_to(tensors[role], operation.output.shape)[index]))

    s = operation.signature
    total *= Fraction(s.alpha)
    for role in tensors.keys() & {"scale_a", "scale_b"}:
        total *= here(role)
    if s.beta:
        total += Fraction(s.beta) * here("addend")
    for step in s.epilogue:
        total = max(total, Fraction(0)) if step == "relu" else total + here(step)
    return float(total)


@pytest.mark.parametrize("name", [
    "matmul_7x5x33_f32t_f32t_f32t", "matmul_7x5x33_bf16n_bf16n_bf16n",
    "matmul_7x5x33_f16t_f16n_f32n_alpha0p5_betam2",
    "batch_matmul_3x7x5x9_f32n_f32t_f32n_bias_relu_residual",
    "matmul_7x5x33_e4m3t_e4m3n_bf16t_scalerow", "matmul_7x5x33_f64t_f64n_f64t",
    "matmul_7x5x33_e5m2t_e4m3n_f16t_scaletensor_bias",
    "matmul_splitk_7x5x32_f16t_f16t_f32t_slices4", "matmul_7x5x33_s8t_s8n_s32n_bias_relu",
])  # fmt: skip
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
    name = "conv2d_2x12x9x3_3x2x4_stride3x2_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias"
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


def reference_of(name, distribution="normal"):
    return compute_reference(*inputs_of(name, distribution))


def test_gelu_is_applied_and_grows_the_magnitude():
    reference = reference_of("matmul_4x4x16_f32t_f32t_f32t_gelu")
    before = reference_of("matmul_4x4x16_f32t_f32t_f32t")
    np.testing.assert_allclose(reference.value, gelu(before.value), rtol=0, atol=1e-14)
    np.testing.assert_allclose(reference.magnitude, before.magnitude * 1.13)


def test_magnitude_is_the_product_of_absolute_values():
    operation, inputs = inputs_of("matmul_16x8x300_bf16t_bf16t_f32t")
    lhs, rhs = (np.abs(to_float64(array)) for array in inputs)
    magnitude = compute_reference(operation, inputs).magnitude
    assert (magnitude >= lhs @ rhs).all()
    np.testing.assert_allclose(magnitude, lhs @ rhs, rtol=1e-4)


def test_extra_rounding_counts_what_an_unfused_epilogue_rounds():
    operation, inputs = inputs_of("matmul_4x4x16_bf16t_bf16t_bf16t_bias_relu_residual")
    product = reference_of("matmul_4x4x16_bf16t_bf16t_bf16t").value
    after_bias = np.maximum(product + to_float64(inputs[2]), 0)
    extra = compute_reference(operation, inputs).extra_rounding
    np.testing.assert_allclose(extra, np.abs(product) + after_bias, rtol=1e-12)
    with_gelu = reference_of("matmul_4x4x16_bf16t_bf16t_bf16t_bias_gelu").extra_rounding
    biased = np.abs(product + to_float64(inputs[2]))
    np.testing.assert_allclose(with_gelu, (np.abs(product) + biased) * GELU_LIPSCHITZ)
    assert reference_of("matmul_4x4x16_bf16t_bf16t_bf16t_relu").extra_rounding is None


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
    reference = reference_of("batch_matmul_3x5x4x8_f32t_f32t_f32t_bias")
    parts, pieces = zip(*reference.rows(9), strict=True)
    assert [part.start for part in parts] == list(range(0, 15, 2))
    joined = np.concatenate([piece.value for piece in pieces])
    assert (joined == reference.value.reshape(15, 4)).all()
    assert all(piece.extra_rounding.shape == piece.value.shape for piece in pieces)


@pytest.mark.parametrize(("formats", "dtype"), [
    ("bf16t_bf16t_bf16t", np.float32), ("f64t_f64t_f64t", np.float64),
    ("s8t_s8t_s32t", np.float64),
])  # fmt: skip
def test_exact_product_uses_float32_only_where_sums_fit(monkeypatch, formats, dtype):
    seen = []

    def multiply(a, b):
        seen.append(a.dtype)
        return a @ b

    monkeypatch.setattr(np, "matmul", multiply)

    operation, inputs = inputs_of(f"matmul_4x4x64_{formats}", "integers")
    product = exact_product(operation, inputs, multiply)
    tensors = logical_tensors(operation, inputs)
    assert (product == to_float64(tensors["lhs"]) @ to_float64(tensors["rhs"])).all()
    assert seen == [dtype]


def test_sizes_of_the_operands_are_kept_for_bounds_by_norm():
    operation, inputs = inputs_of("matmul_7x5x33_e4m3t_e4m3n_bf16t_scalerow_alpham3_gelu")
    sizes = compute_reference(operation, inputs).sizes
    lhs, rhs, scale_a, scale_b = (np.abs(to_float64(array)).max() for array in inputs)
    assert (sizes.lhs, sizes.rhs) == (lhs, rhs)
    assert sizes.scale == pytest.approx(3 * scale_a * scale_b * 1.13)
    assert sizes == operand_sizes(operation, inputs)
    assert reference_of("matmul_4x4x16_f32t_f32t_f32t", "offset_uniform").sizes.scale == 1.0


def test_parts_share_what_the_whole_shares():
    reference = reference_of("matmul_16x8x30_bf16t_bf16t_f32t", "offset_uniform")
    _, piece = next(reference.rows(16))
    for one in (reference, piece):
        assert one.magnitude is one.value
    assert (reference.nbytes, piece.sizes) == (16 * 8 * 8, reference.sizes)
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
