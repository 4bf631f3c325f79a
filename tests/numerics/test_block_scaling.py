from __future__ import annotations

import math

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import E2M1, E4M3, E5M2, E8M0, F32
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference, logical_tensors
from gemmetry.numerics.storage import (
    dequantize,
    dequantized,
    numpy_dtype,
    pack_pairs,
    quantize,
    quantize_blocks,
    swizzle_factors,
    to_float64,
    unpack_pairs,
    unswizzle_factors,
)


def codes(array):
    return np.asarray(array).view(np.uint8).reshape(-1).tolist()


def test_every_code_of_e2m1_and_e8m0():
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    all_codes = to_float64(np.arange(16, dtype=np.uint8).view(numpy_dtype(E2M1)))
    assert all_codes.tolist() == [*values, *(-value for value in values)]
    assert math.copysign(1, all_codes[8]) == -1
    values = to_float64(np.arange(256, dtype=np.uint8).view(numpy_dtype(E8M0)))
    assert values[:255].tolist() == [2.0 ** (byte - 127) for byte in range(255)]
    assert math.isnan(values[255])


def test_ties_of_e2m1_go_to_even_and_large_numbers_saturate():
    rounded = {0.25: 0, 0.75: 1, 1.25: 1, 1.75: 2, 2.5: 2, 3.5: 4, 5: 4, 0.26: 0.5, 5.01: 6, 7: 6,
               1e9: 6, -0.75: -1, -5: -4, -100: -6}  # fmt: skip
    found = quantize(np.array([*rounded], np.float32), E2M1)
    assert to_float64(found).tolist() == [*rounded.values()]


@pytest.mark.parametrize(("dtype", "largest", "factor"), [
    # The exponent of the block's largest number less the exponent of the format's largest.
          (E4M3, 448, 1), (E4M3, 447.9, 1), (E4M3, 255.9, 2.0**-1), (E4M3, 512, 2), (E4M3, 900, 2),
          (E5M2, 57344, 1), (E5M2, 1.0, 2.0**-15), (E2M1, 6, 1), (E2M1, 4, 1), (E2M1, 3.99, 0.5),
          (E2M1, 8, 2), (E2M1, 7.9, 1), (E4M3, 0.0, 2.0**-127), (E4M3, 1e-45, 2.0**-127),
          (E2M1, 2.0**130, 2.0**127),
])  # fmt: skip
def test_factors_of_mx_formats_floor_the_exponent(dtype, largest, factor):
    values = np.zeros((1, 32))
    values[0, 7] = -largest
    found = quantize_blocks(values, dtype, E8M0, depth=32)
    assert to_float64(found.factors).tolist() == [[factor]]
    rounded = dequantize(found.elements, found.factors, lines=1, depth=32)[0, 7]
    if largest > 1e-40:
        wanted = -min(largest, dtype.maximum * factor)
        assert rounded == pytest.approx(wanted, rel=dtype.unit_roundoff)


def test_hand_made_blocks_of_mxfp4_and_nvfp4():
    values = np.array([[7.0, 1.25, -0.2, 3.5, 0.25, 5.0, -6.5, 0.0] + [0.0] * 24])
    found = quantize_blocks(values, E2M1, E8M0, depth=32)
    assert codes(found.factors) == [127]
    assert codes(found.elements[0, :8]) == [7, 2, 8, 6, 0, 6, 15, 0]
    values = np.array([[3.0, -1.0] + [0.0] * 14, [0.75, 0.5] + [0.0] * 14])
    found = quantize_blocks(values, E2M1, E4M3, depth=16)
    assert found.tensor_factor == 1
    assert to_float64(found.factors).tolist() == [[0.5], [0.125]]
    assert to_float64(found.elements)[:, :2].tolist() == [[6, -2], [6, 4]]
    two = quantize_blocks(values, E2M1, E4M3, depth=16, two_levels=True)
    assert two.tensor_factor == 3 / (448 * 6)
    assert to_float64(two.factors).tolist() == [[448], [112]]
    # Without a second level factors saturate and underflow.
    found = quantize_blocks(values * [[2000.0], [2.0**-14]], E2M1, E4M3, depth=16)
    assert to_float64(found.factors).tolist() == [[448], [0]]
    assert to_float64(found.elements)[:, 0].tolist() == [6, 0]


def test_factors_of_fp8_blocks_bring_the_largest_number_to_the_largest_of_the_format():
    values = np.random.default_rng(3).standard_normal((5, 300))
    values[1, :128] = 0
    found = quantize_blocks(values, E4M3, F32, depth=128)
    assert found.factors.shape == (5, 3)
    assert to_float64(found.factors)[1, 0] == 1
    largest = np.abs(to_float64(found.elements))
    assert largest[:, :128].max(axis=1).tolist() == [448, 0, 448, 448, 448]
    assert (largest[:, 256:].max(axis=1) == 448).all()
    error = np.abs(dequantize(found.elements, found.factors, lines=1, depth=128) - values)
    assert error.max() <= np.abs(values).max() * 2.0**-4


def test_blocks_of_several_lines_share_a_factor():
    values = np.ones((130, 130))
    values[129, 129] = 448 * 4
    found = quantize_blocks(values, E4M3, F32, depth=128, lines=128)
    factors = [[1 / 448, 1 / 448], [1 / 448, 4.0]]
    np.testing.assert_allclose(to_float64(found.factors), factors, rtol=1e-7)
    rounded = dequantize(found.elements, found.factors, lines=128, depth=128)
    np.testing.assert_allclose(rounded[:128, :128], 1.0, rtol=1e-6)
    assert rounded[129, 129] == 1792


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("factors", [E8M0, E4M3, F32], ids=str)
def test_a_block_with_nan_or_infinity_is_nan(special, factors):
    values = np.ones((2, 32))
    values[1, 3] = special
    found = quantize_blocks(values, E2M1 if factors is E4M3 else E4M3, factors, depth=16)
    assert np.isnan(to_float64(found.factors)).tolist() == [[False, False], [True, False]]
    assert (to_float64(found.elements)[1, :16] == 0).all()


@pytest.mark.parametrize("shape", [(1, 1), (128, 4), (130, 5), (256, 8), (33, 17), (384, 12)])
def test_the_layout_of_128_by_4_tiles(shape):
    """The formula of the documentation, place by place, and back."""
    rows, columns = shape
    factors = (np.arange(rows * columns) % 255).astype(np.uint8).reshape(shape)
    flat = swizzle_factors(factors.view(numpy_dtype(E8M0)))
    across = -(-columns // 4)
    wanted = np.zeros(-(-rows // 128) * across * 512, np.uint8)
    for r, c in np.ndindex(shape):
        tile = (r // 128) * across + c // 4
        wanted[tile * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = factors[r, c]
    assert codes(flat) == wanted.tolist()
    assert unswizzle_factors(flat, shape).view(np.uint8).tolist() == factors.tolist()


def test_the_layout_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="are not those of 129x4"):
        unswizzle_factors(np.zeros(512, np.uint8), (129, 4))
    with pytest.raises(ValueError, match="factors of one byte"):
        swizzle_factors(np.zeros((4, 4), np.float32))


def test_pairs_hold_the_first_number_in_the_lower_half():
    values = np.arange(16, dtype=np.uint8).view(numpy_dtype(E2M1)).reshape(2, 8)
    packed = pack_pairs(values)
    assert codes(packed) == [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]
    assert codes(unpack_pairs(packed, values.dtype)) == list(range(16))


@pytest.mark.parametrize("name", [
    "matmul_20x24x96_e2m1t_e2m1n_f16t_vs16_e8m0", "matmul_20x24x96_e5m2n_e4m3t_f32t_vs32_e8m0",
    "matmul_130x140x140_e4m3t_e4m3n_bf16t_vs1x128_vs128x128",
    "batch_matmul_2x20x24x33_e2m1t_e2m1n_bf16t_vs16_e4m3",
])  # fmt: skip
def test_the_reference_multiplies_each_element_by_the_factor_of_its_block(name):
    operation = parse_operation(name)
    inputs = make_inputs(operation, distribution="uniform_signed", seed=1)
    tensors = {role: to_float64(x) for role, x in logical_tensors(operation, inputs).items()}
    blocks = operation.signature.blocks
    a, b = np.array(tensors["lhs"]), np.array(tensors["rhs"])
    for i, k in np.ndindex(a.shape[-2:]):
        a[..., i, k] *= tensors["scale_a"][..., i // blocks.rows, k // blocks.depth]
    for k, j in np.ndindex(b.shape[-2:]):
        b[..., k, j] *= tensors["scale_b"][..., k // blocks.depth, j // blocks.columns]
    got_a, got_b = dequantized(operation, logical_tensors(operation, inputs))
    assert (got_a == a).all() and (got_b == b).all()
    reference = compute_reference(operation, inputs)
    assert np.allclose(reference.value, a @ b, rtol=1e-12)
    assert np.allclose(reference.magnitude, np.abs(a) @ np.abs(b), rtol=1e-12)
