"""Powers of two along K, subnormal numbers and overflow: right kernels pass and others fail."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import apply_epilogue, compute_reference
from gemmetry.numerics.storage import to_float32, to_float64
from gemmetry.verification.checks import CheckOutcome
from gemmetry.verification.checks import exact as scale
from gemmetry.verification.inputs.scaled import HONEST_SPAN

F32 = "matmul_20x24x64_f32t_f32n_f32t"
BF16 = "matmul_20x24x64_bf16t_bf16n_bf16t"
F16 = "matmul_20x24x64_f16t_f16n_f16t"
ALL = (scale.check_scaled_along_k, scale.check_subnormals, scale.check_overflow)


def on_inputs(change):
    """A kernel that changes both operands, in float32 or float64, before it multiplies."""

    def kernel(operation, tensors):
        widen = to_float64 if operation.signature.lhs.storage_bits == 64 else to_float32
        a, b = change(widen(tensors["lhs"]), 1), change(widen(tensors["rhs"]), 0)
        return apply_epilogue(operation, to_float64(a @ b), tensors)

    return kernel


def plain(values, axis):
    return values


def below_largest(values, axis):
    """24 bits below the largest number of a line, as with a shared exponent."""
    largest = np.abs(values).max(axis=axis, keepdims=True)
    step = np.exp2(np.floor(np.log2(largest))) * values.dtype.type(2.0**-24)
    return np.rint(values / step) * step


def epsilon(values, axis):
    return np.where(np.abs(values) < 1e-9, 0, values)


def flushed(values, axis):
    return np.where(np.abs(values) < 2.0**-14, 0, values)


@pytest.mark.parametrize("check", ALL)
@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("name", [
    F32, BF16, F16, "matmul_20x24x64_f64t_f64n_f64t_alpha0p1_beta2",
    "matmul_20x24x64_f16t_f16n_f16t_accf16", "matmul_20x24x1024_bf16t_bf16n_bf16t_accbf16",
    "batch_matmul_2x20x24x64_f16t_f16n_f16n_relu", "matmul_20x24x64_e4m3t_e4m3n_bf16t_scalerow",
    "matmul_20x24x64_f16t_f16n_f16t_alpham2_beta0p1_bias_gelu", "matmul_20x24x64_s8t_s8n_s32t",
])  # fmt: skip
def test_right_kernels_pass(context_of, check, thorough, name):
    result = check(context_of(name, kernel=on_inputs(plain), thorough=thorough))
    assert result.outcome in (CheckOutcome.PASSED, CheckOutcome.NOT_APPLICABLE), result.detail


def test_where_no_sum_is_exact_the_bound_decides(context_of):
    name = "matmul_20x24x4096_bf16t_bf16n_bf16t_accbf16"
    right = scale.check_scaled_along_k(context_of(name, kernel=on_inputs(plain)))
    assert right.outcome is CheckOutcome.PASSED
    context = context_of(name, kernel=on_inputs(epsilon))
    context.inputs = make_inputs(context.operation, distribution="offset_uniform", seed=1)
    context.reference = compute_reference(context.operation, context.inputs)
    assert scale.check_scaled_along_k(context).is_failure


def test_a_kernel_that_is_declared_normwise_is_exempt(context_of):
    facts = BuildFacts(declared=(Trait.NORMWISE,))
    result = scale.check_scaled_along_k(
        context_of(F32, kernel=on_inputs(below_largest), facts=facts)
    )
    assert result.outcome is CheckOutcome.NOT_APPLICABLE
    assert "normwise" in result.detail


def test_subnormal_inputs_of_f16_count(context_of):
    assert scale.check_subnormals(context_of(F16, kernel=on_inputs(flushed))).is_failure
    facts = BuildFacts(declared=(Trait.FLUSHES_SUBNORMALS,))
    allowed = scale.check_subnormals(context_of(F16, kernel=on_inputs(flushed), facts=facts))
    assert allowed.outcome is CheckOutcome.NOT_APPLICABLE


def by_largest(operation, tensors, threshold=0.0):
    """Divides both operands by powers of two near their largest numbers, in float32."""
    scaled, factor = [], 1.0
    for role in ("lhs", "rhs"):
        values = to_float32(tensors[role])
        largest = np.float32(2.0 ** np.floor(np.log2(np.abs(values).max())))
        values = np.where(np.abs(values) < threshold, np.float32(0), values)
        scaled.append(values / largest)
        factor *= float(largest)
    return apply_epilogue(operation, to_float64(scaled[0] @ scaled[1]) * factor, tensors)


@pytest.mark.parametrize("name", [F32, BF16])
def test_scaling_by_the_largest_number_is_a_property_and_a_threshold_is_wrong(context_of, name):
    context = context_of(name, kernel=by_largest)
    result = scale.check_scaled_along_k(context)
    assert result.outcome is CheckOutcome.PROPERTY, result.detail
    assert f"2^{HONEST_SPAN}" in result.detail
    context = context_of(name, kernel=functools.partial(by_largest, threshold=2.0**-60))
    assert scale.check_scaled_along_k(context).is_failure
