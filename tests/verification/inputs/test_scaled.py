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
    "matmul_24x20x72_f32t_f32n_f32t",
    "matmul_24x20x72_f64n_f64t_f64t",
    "matmul_24x20x72_bf16t_bf16n_bf16n_bias",
    "matmul_24x20x72_f16n_f16t_f16t",
    "batch_matmul_3x24x20x72_tf32t_tf32n_f32t_alpha0p1_beta2",
    "matmul_24x20x72_e4m3t_e4m3n_f32t_scalerow",
    "matmul_24x20x72_e5m2t_e5m2n_f32t",
    "conv2d_2x6x5x9_3x2x4_stride2x1_pad1x0_f16nhwc_f16hwcf_f32nhwc",
]


def exact(name, round_once=True):
    operation = parse_operation(name)
    return operation, integers(operation, 1, np.matmul, round_once)


@pytest.mark.parametrize("name", NAMES)
def test_the_product_stays_what_it_was(name):
    operation, case = exact(name)
    scaled = scaled_along_k(operation, case.inputs)
    before, after = (compute_reference(operation, given) for given in (case.inputs, scaled))
    assert np.array_equal(before.value, after.value)
    for spec, array in zip(operation.inputs[:2], scaled, strict=False):
        sizes = np.abs(to_float64(array))
        assert sizes.min() >= smallest_normal(spec.dtype)
        assert np.isfinite(sizes).all()
    assert scaled[2:] == case.inputs[2:]


@pytest.mark.parametrize(
    ("name", "apart"),
    [(NAMES[0], 200), (NAMES[1], 200), (NAMES[2], 200), (NAMES[3], 10), (NAMES[5], 6)],
)
def test_columns_are_as_far_apart_as_formats_allow(name, apart):
    operation, case = exact(name)
    scaled = scaled_along_k(operation, case.inputs)
    columns = logical_tensors(operation, scaled)["lhs"]
    before = logical_tensors(operation, case.inputs)["lhs"]
    powers = np.log2(np.abs(to_float64(columns[0])) / np.abs(to_float64(before[0])))
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
@pytest.mark.parametrize(
    "name",
    [
        "matmul_24x20x72_f16t_f16n_f16t",
        "matmul_24x20x1024_f16t_f16n_f32t_alpha0p5_relu",
        "matmul_24x20x72_e4m3t_e5m2n_f32t",
        "conv2d_2x6x5x9_3x2x4_stride2x1_pad1x0_f16nhwc_f16hwcf_f32nhwc",
    ],
)
def test_subnormal_inputs_give_the_same_result_but_for_a_power(name, round_once):
    operation, case = exact(name, round_once)
    small = subnormal(operation, case)
    tensors = logical_tensors(operation, small.inputs)
    below = [
        (np.abs(to_float64(tensors[role])) < smallest_normal(spec.dtype)).mean()
        for role, spec in zip(("lhs", "rhs"), operation.inputs, strict=False)
    ]
    assert max(below) > 0.2
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
    expected = to_float64(large.expected)
    before = to_float64(case.expected)
    rows = 1 if np.array_equal(expected[::2], before[::2]) else 0
    assert np.array_equal(expected[1 - rows :: 2], before[1 - rows :: 2])
    beyond = ~np.isfinite(expected[rows::2])
    assert beyond.mean() > 0.3
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
    case = make(parse_operation("matmul_6x6x6_bf16t_bf16n_f32t"), 5, np.matmul)
    sizes = np.abs(to_float64(case.expected))
    assert sizes.max() > 65504
    assert sizes[sizes > 0].min() < 2.0**-14
    narrow = make(parse_operation("matmul_6x6x6_bf16t_bf16n_f16t"), 5, np.matmul)
    assert 1 <= np.abs(to_float64(narrow.expected)).max() <= 65504


@pytest.mark.parametrize(
    ("formats", "largest", "smallest"),
    [
        ("e4m3t_e4m3n_f32t", 256, 2.0**-6),
        ("e5m2t_e5m2n_f32t", 32768, 2.0**-14),
        ("f16t_f16n_f16t", 32768, 2.0**-14),
        ("e4m3t_e4m3n_e4m3t", 256, 2.0**-6),
        ("f16t_f16n_f16t_accf16", 32768, 2.0**-14),
    ],
)
@pytest.mark.parametrize(("make", "codes"), [(selects_lhs, 0), (selects_rhs, 1)])
def test_narrow_formats_reach_their_ends(formats, largest, smallest, make, codes):
    """The top exponent of e4m3 holds numbers, where formats with infinity keep it for that."""
    operation = parse_operation(f"matmul_96x96x96_{formats}")
    inputs = make(operation, 5, np.matmul).inputs
    sizes = np.abs(to_float64(inputs[codes]))
    assert sizes.max() == largest
    assert sizes[sizes > 0].min() == smallest


@pytest.mark.parametrize("suffix", ["alpha3", "relu", "bias", "beta1"])
def test_what_changes_the_range_of_narrow_results_leaves_lines_alone(suffix):
    operation = parse_operation(f"matmul_24x24x24_f16t_f16n_f16t_{suffix}")
    sizes = np.abs(to_float64(selects_lhs(operation, 5, np.matmul).inputs[0]))
    assert sizes.max() <= 2048
    assert sizes[sizes > 0].min() >= 1


@pytest.mark.parametrize("suffix", ["scalerow", "scaletensor_bias", "alpha3_relu", "beta1"])
@pytest.mark.parametrize(("make", "codes"), [(selects_lhs, 0), (selects_rhs, 1)])
def test_fp8_reaches_its_top_whatever_follows_the_product(suffix, make, codes):
    for formats, largest in (("e4m3t_e4m3n_bf16t", 256), ("e5m2t_e5m2n_f32t", 32768)):
        operation = parse_operation(f"matmul_96x96x96_{formats}_{suffix}")
        case = make(operation, 5, np.matmul)
        sizes = np.abs(to_float64(case.inputs[codes]))
        assert sizes.max() == largest
        assert sizes[sizes > 0].min() == 1
        value = compute_reference(operation, case.inputs).value
        assert np.isfinite(to_float64(quantize(value, operation.output.dtype))).all()


def test_results_of_fp8_with_scales_stay_finite():
    for scaling in ("scalerow", "scaletensor_bias"):
        operation = parse_operation(f"matmul_96x96x96_e5m2t_e5m2n_f16t_{scaling}")
        for make in (selects_lhs, selects_rhs):
            inputs = make(operation, 5, np.matmul).inputs
            assert np.abs(compute_reference(operation, inputs).value).max() <= 65504


@pytest.mark.parametrize(("make", "codes"), [(selects_lhs, "lhs"), (selects_rhs, "rhs")])
@pytest.mark.parametrize("layouts", ["tt", "nn"])
def test_one_line_is_zero(make, codes, layouts):
    lhs, rhs = layouts
    for edge, cleared in ((9, 1), (3, 0)):
        operation = parse_operation(f"matmul_{edge}x{edge}x9_f32{lhs}_f32{rhs}_f32t")
        case = make(operation, 5, np.matmul)
        values = to_float64(logical_tensors(operation, case.inputs)[codes])
        along_k = 1 if codes == "lhs" else 0
        assert (~values.any(axis=along_k)).sum() == cleared
        assert (~to_float64(case.expected).any(axis=along_k)).sum() == cleared


@pytest.mark.parametrize("shape", ["5x40x13", "40x5x13", "13x13x13", "4x6x50"])
@pytest.mark.parametrize(("make", "codes"), [(selects_lhs, "lhs"), (selects_rhs, "rhs")])
def test_every_k_is_used_and_codes_fill_the_significand(shape, make, codes):
    operation = parse_operation(f"matmul_{shape}_f32t_f32t_f32t")
    tensors = logical_tensors(operation, make(operation, 5, np.matmul).inputs)
    ones = to_float64(tensors["rhs" if codes == "lhs" else "lhs"])
    k_axis = 0 if codes == "lhs" else 1
    assert ones.any(axis=k_axis).all()
    if operation.matmul_shape.k <= ones.shape[1 - k_axis]:
        assert ones.any(axis=1 - k_axis).all()
    assert set(np.unique(ones)) == {0.0, 1.0}
    values = np.abs(to_float64(tensors[codes]))
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
