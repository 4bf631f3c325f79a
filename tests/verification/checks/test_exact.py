from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.numerics.references import apply_epilogue, gelu
from gemmetry.numerics.storage import quantize, round_to_tf32, to_float32, to_float64
from gemmetry.verification.checks import CheckOutcome, exact

FP8 = "matmul_12x10x1024_e4m3t_e4m3n_f32t"


def operands(tensors):
    return to_float32(tensors["lhs"]), to_float32(tensors["rhs"])


def truncating(step, bits, promoted_every=None):
    """Sums in which every `step` products are truncated to `bits`, moved to float32 sometimes."""

    def kernel(operation, tensors):
        a, b = operands(tensors)
        total = np.zeros((a.shape[0], b.shape[1]))
        partial = np.zeros_like(total)
        for k in range(0, a.shape[1], step):
            partial = partial + to_float64(a[:, k : k + step] @ b[k : k + step])
            _, exponent = np.frexp(partial)
            unit = np.ldexp(1.0, exponent - bits)
            partial = np.trunc(partial / unit) * unit
            if promoted_every and (k + step) % promoted_every == 0:
                total, partial = total + partial, np.zeros_like(total)
        return total + partial

    return kernel


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


@pytest.mark.parametrize("promoted_every", [None, 128])
def test_fp8_sums_without_promotion_are_failed(context_of, promoted_every):
    context = context_of(FP8, kernel=truncating(32, 14, promoted_every))
    assert exact.check_integers(context).outcome is CheckOutcome.PASSED
    result = exact.check_fp8_promotion(context)
    assert result.is_failure == (promoted_every is None)
    if result.is_failure:
        assert "14-bit accumulator" in result.detail


@pytest.mark.parametrize(
    "name", ["matmul_12x10x256_e4m3t_e4m3n_f32t", "matmul_12x10x4096_bf16t_bf16n_f32t"]
)
def test_promotion_applies_to_long_fp8_sums_alone(context_of, name):
    result = exact.check_fp8_promotion(context_of(name))
    assert result.outcome is CheckOutcome.NOT_APPLICABLE


@pytest.mark.parametrize("scaling", ["scalerow", "scaletensor"])
def test_scales_kept_as_powers_of_two_are_failed(context_of, scaling):
    def as_exponents(operation, tensors):
        kept = {
            role: np.exp2(np.floor(np.log2(np.abs(array)))) if "scale" in role else array
            for role, array in tensors.items()
        }
        a, b = operands(tensors)
        return apply_epilogue(operation, to_float64(a @ b), kept)

    name = f"matmul_12x10x64_e4m3t_e4m3n_bf16t_{scaling}"
    assert exact.check_scale_factors(context_of(name)).outcome is CheckOutcome.PASSED
    context = context_of(name, kernel=as_exponents)
    assert exact.check_integers(context).outcome is CheckOutcome.PASSED
    assert exact.check_scale_factors(context).is_failure


def test_inputs_cast_to_f16_show_in_wide_formats(context_of):
    def through_f16(operation, tensors):
        with np.errstate(over="ignore"):
            a, b = (to_float32(x.astype(np.float16)) for x in operands(tensors))
        with np.errstate(invalid="ignore"):
            return to_float64(a @ b)

    context = context_of("matmul_12x10x64_bf16t_bf16n_f32t", kernel=through_f16)
    assert exact.check_integers(context).outcome is CheckOutcome.PASSED
    assert exact.check_selects_lhs(context).is_failure
    assert exact.check_selects_rhs(context).is_failure


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


def test_rows_divided_by_their_largest_number_are_failed_for_rows_of_zeros(context_of):
    def scaled(operation, tensors):
        a, b = operands(tensors)
        with np.errstate(all="ignore"):
            size = np.exp2(np.floor(np.log2(np.abs(a).max(axis=1, keepdims=True))))
            return to_float64(((a / size) @ b) * size)

    context = context_of("matmul_12x10x16_f32t_f32t_f32t", kernel=scaled)
    assert exact.check_integers(context).outcome is CheckOutcome.PASSED
    result = exact.check_selects_lhs(context)
    assert result.is_failure
    assert "wrong only in row" in result.detail


def combine_with_old(context, choose):
    """The executable writes `choose` of what the output held and of its result."""
    run = context.executable.run

    def combined(inputs, output):
        before = output.copy()
        run(inputs, output)
        choose(before, output, out=output)
        return output

    context.executable.run = combined


def test_the_smaller_of_old_and_new_is_failed(context_of):
    """Both NaN and the largest numbers leave it right."""
    context = context_of("matmul_12x10x16_f32t_f32t_f32t")
    combine_with_old(context, np.fmin)
    assert exact.check_integers(context).outcome is CheckOutcome.PASSED
    assert exact.check_selects_lhs(context).is_failure


def float32_sums(lhs, rhs):
    return lhs.astype(np.float32) @ rhs.astype(np.float32)


def sums_of_saturated_pairs(lhs, rhs):
    """As of instructions that add two products in 16 bits."""
    a, b = lhs.astype(np.int64), rhs.astype(np.int64)
    pairs = a.reshape(len(a), -1, 2)[..., np.newaxis] * b.reshape(-1, 2, b.shape[1])
    return np.clip(pairs.sum(axis=2), -(2**15), 2**15 - 1).sum(axis=1)


def signs_moved(lhs, rhs):
    """|a| times b with the sign of a, which -128 has no room for in 8 bits."""
    moved = np.sign(lhs)[:, :, np.newaxis] * rhs
    return (np.abs(lhs.astype(np.int64))[:, :, np.newaxis] * moved).sum(axis=1)


@pytest.mark.parametrize("epilogue", ["", "_relu"])
def test_the_larger_of_old_and_new_is_failed(context_of, epilogue):
    """Of f16 both sentinels are NaN; behind relu nothing is smaller than a negative number."""
    context = context_of(f"matmul_32x30x16_f16t_f16n_f16t{epilogue}")
    combine_with_old(context, np.fmax)
    assert exact.check_integers(context).outcome is CheckOutcome.PASSED
    assert exact.check_selects_lhs(context).is_failure == (not epilogue)
    assert exact.check_selects_rhs(context).is_failure
    # What the output held is the same in new buffers: nothing is remembered.
    assert exact.check_in_place_change(context).outcome is CheckOutcome.PASSED


@pytest.mark.parametrize("multiply", [float32_sums, sums_of_saturated_pairs, signs_moved])
def test_s8_kernels_that_are_right_for_middling_numbers_are_failed(context_of, multiply):
    def kernel(operation, tensors):
        return multiply(tensors["lhs"], tensors["rhs"]).astype(np.int64)

    context = context_of("matmul_12x10x1100_s8t_s8n_s32t", kernel=kernel)
    assert context.first_errors.bad is None, "right on the dispatch's own inputs"
    assert exact.check_integers(context).is_failure


@pytest.mark.parametrize(
    "suffix", ["f32t", "bf16t_scalerow", "f16t_scaletensor", "bf16t_scalerow_bias", "f32t_alpha3"]
)
def test_the_top_exponent_of_e4m3_holds_numbers(context_of, suffix):
    def with_infinity(operation, tensors):
        a, b = (np.where(np.abs(x) >= 256, np.nan, x) for x in operands(tensors))
        return apply_epilogue(operation, to_float64(a @ b), tensors)

    name = f"matmul_64x48x64_e4m3t_e4m3n_{suffix}"
    for check in (exact.check_selects_lhs, exact.check_selects_rhs):
        assert check(context_of(name)).outcome is CheckOutcome.PASSED
    context = context_of(name, kernel=with_infinity)
    assert exact.check_integers(context).outcome is CheckOutcome.PASSED
    assert exact.check_selects_lhs(context).is_failure
    assert exact.check_selects_rhs(context).is_failure


def tanh_gelu(values):
    return 0.5 * values * (1 + np.tanh(np.sqrt(2 / np.pi) * (values + 0.044715 * values**3)))


@pytest.mark.parametrize("formats", ["bf16t_bf16n_bf16t", "f16t_f16n_f16t", "f32t_f32t_f32t"])
def test_gelu_by_tanh_is_failed(context_of, formats):
    """Next to one rounding of the product to 16 bits it would not show."""

    def by_tanh(operation, tensors):
        a, b = operands(tensors)
        return tanh_gelu(to_float64(a @ b))

    context = context_of(f"matmul_96x90x64_{formats}_gelu", kernel=by_tanh)
    assert exact.check_integers(context).outcome is CheckOutcome.PASSED
    assert exact.check_selects_lhs(context).is_failure
    assert exact.check_selects_rhs(context).is_failure


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


@pytest.mark.parametrize("scaling", ["scalerow", "scaletensor"])
@pytest.mark.parametrize("narrow", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("what", ["product", "factors"])
def test_narrow_factors_are_found(context_of, scaling, narrow, what):
    def kernel(operation, tensors):
        a, b = (to_float32(tensors[role]) for role in ("scale_a", "scale_b"))
        with np.errstate(all="ignore"):
            if what == "product":
                factor = (a * b).astype(narrow)
            else:
                factor = to_float64(a.astype(narrow)) * to_float64(b.astype(narrow))
            return to_float64(to_float32(tensors["lhs"]) @ to_float32(tensors["rhs"])) * factor

    name = f"matmul_12x10x64_e4m3t_e4m3n_f32t_{scaling}"
    assert exact.check_scale_factors(context_of(name, kernel=kernel)).is_failure
