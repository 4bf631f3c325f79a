from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.numerics.references import compute_reference, exact_product, logical_tensors
from gemmetry.numerics.storage import absolute, quantize, to_float64
from gemmetry.verification.inputs.scaled import scaled, selects_lhs, selects_rhs


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
