from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.numerics.references import apply_epilogue, gelu
from gemmetry.numerics.storage import quantize, round_to_tf32, to_float32, to_float64
from gemmetry.verification.checks import CheckOutcome, exact


def operands(tensors):
    return to_float32(tensors["lhs"]), to_float32(tensors["rhs"])


def test_not_applicable_where_sums_round(context_of):
    context = context_of("matmul_8x6x4096_bf16t_bf16t_bf16t_accbf16")
    result = exact.check_integers(context)
    assert result.text == "not applicable: sums of K=4096 round in bf16"
    assert exact.check_in_place_change(context).outcome is CheckOutcome.PASSED


def test_the_ladder_shows_how_wide_the_accumulator_is(context_of):
    def f16_sums(operation, tensors):
        a, b = operands(tensors)
        total = np.zeros((a.shape[0], b.shape[1]), np.float16)
        for k in range(0, a.shape[1], 16):
            total += (a[:, k : k + 16] @ b[k : k + 16]).astype(np.float16)
        return to_float64(total)

    context = context_of("matmul_32x32x256_bf16t_bf16n_f32t", kernel=f16_sums)
    result = exact.check_integers(context)
    assert "exact up to ±3, so sums of about 11 bits are still exact" in result.detail
    assert "with ±16: " in exact.check_integer_ladder(context).detail


@pytest.mark.parametrize(
    "name", ["matmul_12x10x256_e4m3t_e4m3n_f32t", "matmul_12x10x4096_bf16t_bf16n_f32t"]
)
def test_promotion_applies_to_long_fp8_sums_alone(context_of, name):
    result = exact.check_fp8_promotion(context_of(name))
    assert result.outcome is CheckOutcome.NOT_APPLICABLE


def cached(key):
    kept = {}

    def kernel(operation, tensors):
        found = kept.get(key(tensors))
        if found is None:
            a, b = operands(tensors)
            found = kept[key(tensors)] = to_float64(a @ b)
        return found

    return kernel


def test_results_kept_by_pointer_show_in_place(context_of):
    by_pointer = cached(lambda tensors: tensors["lhs"].ctypes.data)
    context = context_of("matmul_12x10x64_f32t_f32n_f32t", kernel=by_pointer)
    assert exact.check_integers(context).outcome is CheckOutcome.PASSED
    assert exact.check_in_place_change(context).detail.endswith("remembered by pointer")


def test_results_kept_by_shape_show_in_new_buffers(context_of):
    by_shape = cached(lambda tensors: tensors["lhs"].shape)
    context = context_of("matmul_12x10x64_f32t_f32n_f32t", kernel=by_shape)
    assert context.first.output.any()
    assert "result of the first launch's inputs" in exact.check_integers(context).detail


def test_pointers_show_without_exact_inputs_too(context_of):
    by_pointer = cached(lambda tensors: tensors["lhs"].ctypes.data)
    name = "matmul_8x6x4096_bf16t_bf16t_bf16t_accbf16"
    assert exact.check_in_place_change(context_of(name, kernel=by_pointer)).is_failure


class TestDeclared:
    def test_tf32_is_counted_in_tf32(self, context_of):
        def tf32(operation, tensors):
            a, b = (round_to_tf32(x) for x in operands(tensors))
            return to_float64(a @ b)

        name = "matmul_12x10x3_f32t_f32n_f32t"
        for declared, fails in (((), True), ((Trait.TF32,), False)):
            context = context_of(name, kernel=tf32, facts=BuildFacts(declared=declared))
            assert exact.check_selects_lhs(context).is_failure == fails
            assert exact.check_integers(context).is_failure == fails

    def test_results_rounded_by_chance(self, context_of):
        rng = np.random.default_rng(3)

        def stochastic(operation, tensors):
            a, b = operands(tensors)
            bits = (a @ b).view(np.uint32)
            bits = bits + rng.integers(0, 2**16, bits.shape, dtype=np.uint32)
            return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(ml_dtypes.bfloat16)

        name = "matmul_12x10x64_bf16t_bf16n_bf16t"
        for declared, fails in (((), True), ((Trait.STOCHASTIC_ROUNDING,), False)):
            context = context_of(name, kernel=stochastic, facts=BuildFacts(declared=declared))
            assert exact.check_integers(context).is_failure == fails

    def test_sums_bounded_by_norm(self, context_of):
        def nearly(operation, tensors):
            a, b = operands(tensors)
            value = to_float64(a @ b)
            return value + 2.0**-22 * np.abs(value).max() * np.resize([1, -1], value.shape)

        name = "matmul_12x10x64_f32t_f32n_f32t"
        for declared, fails in (((), True), ((Trait.NORMWISE,), False)):
            context = context_of(name, kernel=nearly, facts=BuildFacts(declared=declared))
            assert exact.check_integers(context).is_failure == fails


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


def added_late(operation, tensors):
    """As two kernels do it."""
    s = operation.signature
    due = s.alpha * (to_float64(tensors["lhs"]) @ to_float64(tensors["rhs"]))
    if "scale_a" in tensors:
        due = due * to_float64(tensors["scale_a"]) * to_float64(tensors["scale_b"])
    sums = to_float64(quantize(due, s.result)) + s.beta * to_float64(tensors["addend"])
    return np.maximum(sums, 0) if s.epilogue else sums


@pytest.mark.parametrize("name", ADDED)
def test_what_c_cancels_is_not_rounded_before(context_of, name):
    assert exact.check_addend_cancels(context_of(name)).outcome is CheckOutcome.PASSED
    context = context_of(name, kernel=added_late)
    assert context.first_errors.bad_count == 0
    result = exact.check_addend_cancels(context)
    # Two kernels, and cuBLAS in bf16.
    assert result.outcome is CheckOutcome.WARNED
    assert "rounded to the result's format before C is added" in result.detail
    facts = BuildFacts(declared=(Trait.ROUNDS_BEFORE_ADDING,))
    declared = exact.check_addend_cancels(context_of(name, kernel=added_late, facts=facts))
    assert declared.outcome is CheckOutcome.NOT_APPLICABLE


@pytest.mark.parametrize("name", ADDED)
def test_what_c_cancels_is_rounded_before_nowhere_or_everywhere(context_of, name):
    def added_late_in_part(operation, tensors):
        s = operation.signature
        due = s.alpha * (to_float64(tensors["lhs"]) @ to_float64(tensors["rhs"]))
        if "scale_a" in tensors:
            due = due * to_float64(tensors["scale_a"]) * to_float64(tensors["scale_b"])
        sums = due + s.beta * to_float64(tensors["addend"])
        found = np.maximum(sums, 0) if s.epilogue else sums
        found[..., :3, :] = added_late(operation, tensors)[..., :3, :]
        return found

    result = exact.check_addend_cancels(context_of(name, kernel=added_late_in_part))
    assert result.is_failure
    assert "in a part of the result" in result.detail


@pytest.mark.parametrize(
    "name",
    [
        "matmul_12x10x64_bf16t_bf16n_bf16t",
        "matmul_12x10x64_f32t_f32n_f32t_beta1",
        "matmul_12x10x64_bf16t_bf16n_bf16t_beta1_bias",
        "matmul_12x10x64_s8t_s8n_s32t_beta1",
    ],
)
def test_nothing_can_cancel_where_nothing_is_lost(context_of, name):
    assert exact.check_addend_cancels(context_of(name)).outcome is CheckOutcome.NOT_APPLICABLE


@pytest.mark.parametrize("scaling", ["scalerow", "scaletensor", "scalerow_beta1_bias_relu"])
@pytest.mark.parametrize("result", ["bf16t", "f32t", "f16t", "e4m3t"])
def test_factors_of_any_size_are_right_in_any_order(context_of, scaling, result):
    def columns_first(operation, tensors):
        product = (to_float32(tensors["lhs"]) @ to_float32(tensors["rhs"])).astype(np.float32)
        scaled = product * tensors["scale_b"].astype(np.float32)
        ones = {"scale_a": tensors["scale_a"], "scale_b": np.ones_like(tensors["scale_b"])}
        return apply_epilogue(operation, to_float64(scaled), {**tensors, **ones})

    name = f"matmul_12x10x64_e4m3t_e4m3n_{result}_{scaling}"
    for kernel in ({}, {"kernel": columns_first}):
        outcome = exact.check_scale_factors(context_of(name, **kernel))
        assert outcome.outcome is CheckOutcome.PASSED, outcome.detail
