"""Inputs times powers of two, and selections of lines: exact, and as far apart as formats allow."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference, exact_product, logical_tensors
from gemmetry.numerics.storage import absolute, quantize, smallest_normal, to_float64
from gemmetry.verification.inputs.exact import integers
from gemmetry.verification.inputs.scaled import (
    overflowing,
    scaled,
    scaled_along_k,
    selects_lhs,
    selects_rhs,
    subnormal,
)

NAMES = [
    "matmul_24x20x72_f32t_f32n_f32t", "matmul_24x20x72_f64n_f64t_f64t",
    "matmul_24x20x72_bf16t_bf16n_bf16n_bias", "matmul_24x20x72_f16n_f16t_f16t",
    "batch_matmul_3x24x20x72_tf32t_tf32n_f32t_alpha0p1_beta2",
    "matmul_24x20x72_e4m3t_e4m3n_f32t_scalerow", "matmul_24x20x72_e5m2t_e5m2n_f32t",
    "conv2d_2x6x5x9_3x2x4_stride2x1_pad1x0_f16nhwc_f16hwcf_f32nhwc",
]  # fmt: skip
SELECTIONS = pytest.mark.parametrize(("make", "codes"), [(selects_lhs, 0), (selects_rhs, 1)])


def sizes_of(array):
    """(least above 0, largest) magnitude."""
    sizes = np.abs(to_float64(array))
    return sizes[sizes > 0].min(), sizes.max()


def exact(name, round_once=True):
    operation = parse_operation(name)
    return operation, integers(operation, 1, np.matmul, round_once)


@pytest.mark.parametrize("name", NAMES)
def test_the_product_stays_what_it_was(name):
    operation, case = exact(name)
    scaled = scaled_along_k(operation, case.inputs)
    before, after = (compute_reference(operation, given).value for given in (case.inputs, scaled))
    assert np.array_equal(before, after)
    for spec, array in zip(operation.inputs[:2], scaled, strict=False):
        least, largest = sizes_of(array)
        assert smallest_normal(spec.dtype) <= least <= largest < np.inf
    assert scaled[2:] == case.inputs[2:]


@pytest.mark.parametrize(("name", "apart"), [
    (NAMES[0], 200), (NAMES[1], 200), (NAMES[2], 200), (NAMES[3], 10), (NAMES[5], 6),
])  # fmt: skip
def test_columns_are_as_far_apart_as_formats_allow(name, apart):
    operation, case = exact(name)
    before, columns = (
        np.abs(to_float64(logical_tensors(operation, inputs)["lhs"][0]))
        for inputs in (case.inputs, scaled_along_k(operation, case.inputs))
    )
    powers = np.log2(columns / before)
    assert np.ptp(powers) >= apart
    assert np.abs(powers).max() <= 100
    assert np.abs(np.diff(powers)).min() > 0


def test_zeros_stay_and_what_cannot_be_scaled_is_left():
    operation = parse_operation("matmul_8x6x12_f32t_f32t_f32t")
    inputs = make_inputs(operation, distribution="normal", seed=3)
    a = np.array(inputs[0])
    a[0, 0], a[1, 1], a[2, 2], a[:, 3] = np.nan, np.inf, 1e-45, 0
    scaled = scaled_along_k(operation, (a, inputs[1]))[0]
    assert np.array_equal(scaled[:, :3], a[:, :3], equal_nan=True)
    assert not scaled[:, 3].any()
    assert not np.array_equal(scaled[:, 4:], a[:, 4:])
    integer = parse_operation("matmul_8x6x12_s8t_s8n_s32t")
    inputs = make_inputs(integer, distribution="offset_uniform", seed=1)
    assert scaled_along_k(integer, inputs) is None


@pytest.mark.parametrize("round_once", [True, False])
@pytest.mark.parametrize("name", [
    "matmul_24x20x72_f16t_f16n_f16t", "matmul_24x20x1024_f16t_f16n_f32t_alpha0p5_relu",
    "matmul_24x20x72_e4m3t_e5m2n_f32t", NAMES[-1],
])  # fmt: skip
def test_subnormal_inputs_give_the_same_result_but_for_a_power(name, round_once):
    operation, case = exact(name, round_once)
    small = subnormal(operation, case)
    assert max(
        (np.abs(to_float64(array)) < smallest_normal(spec.dtype)).mean()
        for array, spec in zip(small.inputs[:2], operation.inputs, strict=False)
    ) > 0.2  # fmt: skip
    expected = compute_reference(operation, small.inputs).value
    if small.expected is None:
        assert np.array_equal(small.reference.value, expected)
    else:
        rounded = quantize(expected, operation.output.dtype)
        assert np.array_equal(to_float64(small.expected), to_float64(rounded))


@pytest.mark.parametrize(
    "name", ["matmul_24x20x72_f16t_f16n_f16n", "matmul_24x20x1024_e5m2t_e5m2n_e5m2t_relu"]
)
def test_every_second_row_overflows_with_the_sign_of_its_sum(name):
    operation, case = exact(name)
    large = overflowing(operation, case)
    expected, before = to_float64(large.expected), to_float64(case.expected)
    rows = 1 if np.array_equal(expected[::2], before[::2]) else 0
    assert np.array_equal(expected[1 - rows :: 2], before[1 - rows :: 2])
    assert (~np.isfinite(expected[rows::2])).mean() > 0.3
    assert np.array_equal(np.sign(expected), np.sign(before))
    reference = compute_reference(operation, large.inputs).value
    assert np.array_equal(to_float64(quantize(reference, operation.output.dtype)), expected)


@pytest.mark.parametrize(("make", "name"), [
    (subnormal, "matmul_24x20x72_f32t_f32n_f32t"),
    (subnormal, "matmul_24x20x72_f16t_f16n_f16t_bias"),
    (subnormal, "matmul_24x20x512_f16t_f16t_f16t_alpha4096"),
    (overflowing, "matmul_24x20x72_f32t_f32n_f32t"),
    (overflowing, "matmul_24x20x72_f16t_f16n_f16t_accf16"),
    (overflowing, "matmul_24x20x72_f16t_f16n_f16t_bias"),
    (overflowing, NAMES[-1]),
])  # fmt: skip
def test_subnormal_inputs_and_overflow_need_room(make, name):
    assert make(*exact(name)) is None


def _no_product(lhs, rhs):
    raise AssertionError("nothing has to be multiplied")


@pytest.mark.parametrize("make", [selects_lhs, selects_rhs])
def test_wide_formats_reach_beyond_f16_at_both_ends(make):
    wide, narrow = (
        sizes_of(make(parse_operation(f"matmul_6x6x6_bf16t_bf16n_{to}t"), 5, np.matmul).expected)
        for to in ("f32", "f16")
    )
    assert wide[0] < 2.0**-14 and wide[1] > 65504
    assert 1 <= narrow[1] <= 65504


@pytest.mark.parametrize(("formats", "ends"), [
    ("e4m3t_e4m3n_f32t", (2.0**-6, 256)), ("e5m2t_e5m2n_f32t", (2.0**-14, 32768)),
    ("f16t_f16n_f16t", (2.0**-14, 32768)), ("e4m3t_e4m3n_e4m3t", (2.0**-6, 256)),
    ("f16t_f16n_f16t_accf16", (2.0**-14, 32768)),
])  # fmt: skip
@SELECTIONS
def test_narrow_formats_reach_their_ends(formats, ends, make, codes):
    """The top exponent of e4m3 holds numbers, where formats with infinity keep it for that."""
    operation = parse_operation(f"matmul_96x96x96_{formats}")
    assert sizes_of(make(operation, 5, np.matmul).inputs[codes]) == ends


@pytest.mark.parametrize("suffix", ["alpha3", "relu", "bias", "beta1"])
def test_what_changes_the_range_of_narrow_results_leaves_lines_alone(suffix):
    operation = parse_operation(f"matmul_24x24x24_f16t_f16n_f16t_{suffix}")
    least, largest = sizes_of(selects_lhs(operation, 5, np.matmul).inputs[0])
    assert 1 <= least <= largest <= 2048


@pytest.mark.parametrize(("formats", "suffixes", "ends"), [
    ("e4m3t_e4m3n_bf16t", ("scalerow", "scaletensor_bias", "alpha3_relu", "beta1"), (1, 256)),
    ("e5m2t_e5m2n_f32t", ("scalerow", "scaletensor_bias", "alpha3_relu", "beta1"), (1, 32768)),
    # Narrow results stay finite.
    ("e5m2t_e5m2n_f16t", ("scalerow", "scaletensor_bias"), None),
])  # fmt: skip
@SELECTIONS
def test_fp8_reaches_its_top_whatever_follows_the_product(formats, suffixes, ends, make, codes):
    for suffix in suffixes:
        operation = parse_operation(f"matmul_96x96x96_{formats}_{suffix}")
        case = make(operation, 5, np.matmul)
        assert ends is None or sizes_of(case.inputs[codes]) == ends
        value = compute_reference(operation, case.inputs).value
        assert np.abs(value).max() <= operation.output.dtype.maximum


@SELECTIONS
@pytest.mark.parametrize("layouts", ["tt", "nn"])
@pytest.mark.parametrize(("edge", "cleared"), [(9, 1), (3, 0)])
def test_one_line_is_zero(make, codes, layouts, edge, cleared):
    lhs, rhs = layouts
    operation = parse_operation(f"matmul_{edge}x{edge}x9_f32{lhs}_f32{rhs}_f32t")
    case = make(operation, 5, np.matmul)
    values = logical_tensors(operation, case.inputs)[("lhs", "rhs")[codes]]
    for one in (values, case.expected):
        assert (~to_float64(one).any(axis=1 - codes)).sum() == cleared


@pytest.mark.parametrize("shape", ["5x40x13", "40x5x13", "13x13x13", "4x6x50"])
@SELECTIONS
def test_every_k_is_used_and_codes_fill_the_significand(shape, make, codes):
    operation = parse_operation(f"matmul_{shape}_f32t_f32t_f32t")
    tensors = logical_tensors(operation, make(operation, 5, np.matmul).inputs)
    operands = [to_float64(tensors[role]) for role in ("lhs", "rhs")]
    values, ones = np.abs(operands[codes]), operands[1 - codes]
    assert ones.any(axis=codes).all()
    if operation.matmul_shape.k <= ones.shape[1 - codes]:
        assert ones.any(axis=1 - codes).all()
    assert set(np.unique(ones)) == {0.0, 1.0}
    if shape == "13x13x13":
        assert values.max() > 2.0 ** (23 + 17)
    assert (values % 2 == 1).any()


@pytest.mark.parametrize("formats", ["e2m1t_e2m1n_f16t_vs16_e8m0", "e2m1t_e2m1n_f32t_vs16_e4m3",
                                     "e4m3t_e4m3n_bf16t_vs1x16_vs16x16"])  # fmt: skip
@pytest.mark.parametrize("shape", ["64x48x128", "8x200x512", "200x8x256"])
def test_selections_with_factors_that_use_every_bit_are_gathered(formats, shape):
    operation = parse_operation(f"matmul_{shape}_{formats}")
    case = scaled(operation, 5, _no_product)
    value = exact_product(operation, case.inputs, np.matmul)
    magnitude = exact_product(operation, [absolute(one) for one in case.inputs], np.matmul)
    np.testing.assert_allclose(case.reference.magnitude, magnitude, rtol=1e-14)
    assert (np.abs(case.reference.value - value) <= 2.0**-50 * magnitude).all()
