"""Results that are known to the bit, powers of two along K, and the explanation of a failure."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest
from tests.verification.conftest import (
    accumulating,
    addresses,
    assert_fails,
    keeping,
    operands,
    product,
    right,
)

from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.numerics.references import apply_epilogue, gelu
from gemmetry.numerics.storage import quantize, round_to_tf32, to_float64
from gemmetry.verification.checks import CheckOutcome, exact
from gemmetry.verification.inputs.scaled import HONEST_SPAN

ROUNDING = "matmul_8x6x4096_bf16t_bf16t_bf16t_accbf16"


def test_not_applicable_where_sums_round(context_of):
    context = context_of(ROUNDING)
    result = exact.check_integers(context)
    assert result.text == "not applicable: sums of K=4096 round in bf16"
    assert exact.check_in_place_change(context).outcome is CheckOutcome.PASSED


def test_the_ladder_shows_how_wide_the_accumulator_is(context_of):
    kernel = accumulating(lambda total: total.astype(np.float16), 16)
    context = context_of("matmul_32x32x256_bf16t_bf16n_f32t", kernel=kernel)
    result = exact.check_integers(context)
    assert "exact up to ±3, so sums of about 11 bits are still exact" in result.detail
    assert "with ±16: " in exact.check_integer_ladder(context).detail


@pytest.mark.parametrize(("check", "name"), [
    (exact.check_fp8_promotion, "matmul_12x10x256_e4m3t_e4m3n_f32t"),
    (exact.check_fp8_promotion, "matmul_12x10x4096_bf16t_bf16n_f32t"),
    # Nothing can cancel where nothing is lost.
    (exact.check_addend_cancels, "matmul_12x10x64_bf16t_bf16n_bf16t"),
    (exact.check_addend_cancels, "matmul_12x10x64_f32t_f32n_f32t_beta1"),
    (exact.check_addend_cancels, "matmul_12x10x64_bf16t_bf16n_bf16t_beta1_bias"),
    (exact.check_addend_cancels, "matmul_12x10x64_s8t_s8n_s32t_beta1"),
])  # fmt: skip
def test_where_nothing_would_be_lost(context_of, check, name):
    assert check(context_of(name)).outcome is CheckOutcome.NOT_APPLICABLE


def tf32(operation, tensors):
    return product(operation, {role: round_to_tf32(x) for role, x in tensors.items()})


def stochastic(operation, tensors):
    """Rounded to bf16 up or down by chance."""
    bits = product(operation, tensors).astype(np.float32).view(np.uint32)
    bits = bits + np.random.default_rng(3).integers(0, 2**16, bits.shape, np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(ml_dtypes.bfloat16)


def nearly(operation, tensors):
    value = product(operation, tensors)
    return value + 2.0**-22 * np.abs(value).max() * np.resize([1, -1], value.shape)


@pytest.mark.parametrize(("name", "kernel", "trait"), [
    ("matmul_12x10x3_f32t_f32n_f32t", tf32, Trait.TF32),
    ("matmul_12x10x64_bf16t_bf16n_bf16t", stochastic, Trait.STOCHASTIC_ROUNDING),
    ("matmul_12x10x64_f32t_f32n_f32t", nearly, Trait.NORMWISE),
])  # fmt: skip
def test_what_is_declared_is_granted(context_of, name, kernel, trait):
    for declared in ((), (trait,)):
        context = context_of(name, kernel=kernel, facts=BuildFacts(declared=declared))
        assert exact.check_integers(context).is_failure is not bool(declared)
        if trait is Trait.TF32:
            assert exact.check_selects_lhs(context).is_failure is not bool(declared)
    if trait is Trait.NORMWISE:
        assert exact.check_scaled_along_k(context).outcome is CheckOutcome.NOT_APPLICABLE


def test_exact_results_are_quantised_once(context_of):
    context = context_of("matmul_12x10x64_bf16t_bf16n_bf16t")
    run = context.exact("integers", exact.exact_inputs.integers)
    a, b = (to_float64(x) for x in (run.case.inputs[0], run.case.inputs[1].T))
    assert (run.case.expected == quantize(a @ b, context.operation.output.dtype)).all()


@pytest.mark.parametrize("formats", ["bf16t_bf16n_bf16t", "f16t_f16n_f16t"])
def test_gelu_of_a_product_in_16_bits_is_right(context_of, formats):
    def in_two_kernels(operation, tensors):
        a, b = operands(tensors)
        return gelu(to_float64(quantize(a @ b, operation.output.dtype)))

    context = context_of(f"matmul_96x90x64_{formats}_gelu", kernel=in_two_kernels)
    for check in (exact.check_integers, exact.check_selects_lhs, exact.check_selects_rhs):
        assert check(context).outcome is CheckOutcome.PASSED


ADDED = [
    "matmul_12x10x64_bf16t_bf16n_bf16t_beta1",
    "matmul_12x10x64_bf16t_bf16n_bf16t_alpham2_beta0p5_relu",
    "matmul_12x10x64_f16t_f16n_f16t_alpha0p3_betam1p7",
    "batch_matmul_3x12x10x64_f16t_f16n_f16t_beta1",
    "matmul_12x10x64_e4m3t_e4m3n_bf16t_scalerow_beta1",
]


def added_late(operation, tensors, rows=None):
    """As two kernels do it, in the first `rows` or in all."""
    s = operation.signature
    due = s.alpha * (to_float64(tensors["lhs"]) @ to_float64(tensors["rhs"]))
    for role in tensors.keys() & {"scale_a", "scale_b"}:
        due = due * to_float64(tensors[role])
    due[..., :rows, :] = to_float64(quantize(due[..., :rows, :], s.result))
    sums = due + s.beta * to_float64(tensors["addend"])
    return np.maximum(sums, 0) if s.epilogue else sums


@pytest.mark.parametrize("name", ADDED)
def test_what_c_cancels_is_rounded_before_nowhere_or_everywhere(context_of, name):
    def judged(**how):
        context = context_of(name, **how)
        assert context.first_errors.bad_count == 0
        return exact.check_addend_cancels(context)

    assert judged().outcome is CheckOutcome.PASSED
    # Two kernels, and cuBLAS in bf16.
    result = judged(kernel=added_late)
    assert result.outcome is CheckOutcome.WARNED
    assert "rounded to the result's format before C is added" in result.detail
    facts = BuildFacts(declared=(Trait.ROUNDS_BEFORE_ADDING,))
    assert judged(kernel=added_late, facts=facts).outcome is CheckOutcome.NOT_APPLICABLE
    assert_fails(judged(kernel=functools.partial(added_late, rows=3)), "in a part of the result")


@pytest.mark.parametrize("scaling", ["scalerow", "scaletensor", "scalerow_beta1_bias_relu"])
@pytest.mark.parametrize("result", ["bf16t", "f32t", "f16t", "e4m3t"])
def test_factors_of_any_size_are_right_in_any_order(context_of, scaling, result):
    def columns_first(operation, tensors):
        a, b = operands(tensors)
        ones = {**tensors, "scale_b": np.ones_like(tensors["scale_b"])}
        scaled = (a @ b) * tensors["scale_b"].astype(np.float32)
        return apply_epilogue(operation, to_float64(scaled), ones)

    for kernel in (right, columns_first):
        name = f"matmul_12x10x64_e4m3t_e4m3n_{result}_{scaling}"
        outcome = exact.check_scale_factors(context_of(name, kernel=kernel))
        assert outcome.outcome is CheckOutcome.PASSED, outcome.detail


PLAIN = "matmul_64x48x32_f32t_f32t_f32t"


def test_a_kept_result_is_known_again(context_of):
    context = context_of(PLAIN, meddle=keeping(addresses))
    assert exact.check_integers(context).text == "passed"
    result = exact.check_selects_lhs(context)
    assert "kept: it is the result of the inputs of integers" in result.detail
    assert "other numbers" not in result.detail
    context = context_of(PLAIN, meddle=keeping(len))
    assert context.first.output.any()
    result = exact.check_integers(context)
    assert "kept: it is the result of the first launch's inputs" in result.detail
    context = context_of(ROUNDING, meddle=keeping(addresses))
    assert exact.check_in_place_change(context).is_failure


def test_a_shared_scale_is_not_explained_as_an_index(context_of):
    def shares_an_exponent(operation, tensors):
        a = to_float64(tensors["lhs"])
        unit = np.abs(a).max(1, keepdims=True) * 2.0**-24
        return right(operation, {**tensors, "lhs": np.round(a / unit) * unit})

    context = context_of(PLAIN, kernel=shares_an_exponent)
    assert not context.first_errors.bad_count
    result = exact.check_scaled_along_k(context)
    assert "numbers share a scale" in result.detail
    assert "index" not in result.detail and "other numbers" not in result.detail


def on_inputs(threshold):
    """A kernel that takes inputs below a threshold for zero."""

    def kernel(operation, tensors):
        a, b = (np.where(np.abs(x) < threshold, 0, x) for x in operands(tensors))
        return to_float64(a @ b)

    return kernel


@pytest.mark.parametrize("threshold", [0, 1e-9])
def test_where_no_sum_is_exact_the_bound_decides(context_of, threshold):
    name = "matmul_20x24x4096_bf16t_bf16n_bf16t_accbf16"
    context = context_of(name, distribution="offset_uniform", kernel=on_inputs(threshold))
    wanted = CheckOutcome.FAILED if threshold else CheckOutcome.PASSED
    assert exact.check_scaled_along_k(context).outcome is wanted


@pytest.mark.parametrize("declared", [(), (Trait.FLUSHES_SUBNORMALS,)])
def test_subnormal_inputs_of_f16_count(context_of, declared):
    how = {"kernel": on_inputs(2.0**-14), "facts": BuildFacts(declared=declared)}
    wanted = CheckOutcome.NOT_APPLICABLE if declared else CheckOutcome.FAILED
    result = exact.check_subnormals(context_of("matmul_20x24x64_f16t_f16n_f16t", **how))
    assert result.outcome is wanted


def by_largest(operation, tensors, threshold=0.0):
    """Divides both operands by powers of two near their largest numbers, in float32."""
    scaled, factor = [], 1.0
    for values in operands(tensors):
        largest = np.float32(2.0 ** np.floor(np.log2(np.abs(values).max())))
        scaled.append(np.where(np.abs(values) < threshold, np.float32(0), values) / largest)
        factor *= float(largest)
    return to_float64(scaled[0] @ scaled[1]) * factor


@pytest.mark.parametrize("formats", ["f32t_f32n_f32t", "bf16t_bf16n_bf16t"])
def test_scaling_by_the_largest_number_is_a_property_and_a_threshold_is_wrong(context_of, formats):
    name = f"matmul_20x24x64_{formats}"
    result = exact.check_scaled_along_k(context_of(name, kernel=by_largest))
    assert result.outcome is CheckOutcome.PROPERTY, result.detail
    assert f"2^{HONEST_SPAN}" in result.detail
    context = context_of(name, kernel=functools.partial(by_largest, threshold=2.0**-60))
    assert exact.check_scaled_along_k(context).is_failure
