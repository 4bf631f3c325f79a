from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import BF16, F16, F32
from gemmetry.domain.record import Trait
from gemmetry.numerics.bounds import (
    MEANINGLESS,
    accumulation_error,
    bound_rule,
    half_ulp,
    normwise_error,
    probabilistic_error,
    rounds_once,
)
from gemmetry.numerics.references import OperandSizes, Reference, gelu, with_epilogue
from gemmetry.numerics.storage import quantize, to_float64

LONG = parse_operation("matmul_1x1x64_f32t_f32t_f32t")
SIZES = OperandSizes(lhs=2.0, rhs=3.0, scale=1.0)


def bounds(operation, value, magnitude, *declared, extra=None, sizes=None, **how):
    """Warn and fail bounds of one element."""
    extra = None if extra is None else np.array([[extra]])
    reference = Reference(np.array([[value]]), np.array([[magnitude]]), extra, sizes)
    rule = bound_rule(operation, reference, declared=declared, **how)
    return np.array([rule.warn(reference)[0, 0], rule.fail(reference)[0, 0]])


@settings(max_examples=200)
@given(st.floats(1e-3, 1e4), st.sampled_from([BF16, F16, F32]))
def test_half_ulp_is_half_the_gap_between_neighbours(value, dtype):
    half = float(half_ulp(np.array([value]), dtype)[0])
    rounded = float(to_float64(quantize(np.array([value]), dtype))[0])
    assert abs(rounded - value) <= half
    grid = value - math.fmod(value, 2 * half)
    neighbour = float(to_float64(quantize(np.array([grid + 2 * half]), dtype))[0])
    assert neighbour == grid + 2 * half
    assert half <= value * dtype.unit_roundoff


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_accumulators_are_capped_so_that_zeros_never_pass(dtype):
    operation = parse_operation(f"matmul_8x8x65536_{dtype}t_{dtype}t_{dtype}t_acc{dtype}")
    assert accumulation_error(operation).fail == MEANINGLESS
    assert bounds(operation, 1000.0, 1000.0)[1] < 1000.0


def test_unfused_epilogues_fail_no_bound_but_the_warn_one():
    operation = parse_operation("matmul_8x8x64_bf16t_bf16t_bf16t_bias")
    more = bounds(operation, 1.0, 2.0, extra=3.0) - bounds(operation, 1.0, 2.0)
    assert more.tolist() == [0.0, pytest.approx(3.0 * 2**-8)]


def test_unfused_epilogues_may_underflow_before_each_step():
    """One product of f16 numbers, rounded to a subnormal f16 number and followed by gelu."""
    operation = parse_operation("matmul_1x2047x1_f16t_f16n_f16t_gelu")
    product = (np.arange(1, 2048) - 0.499) * 2.0**-24
    reference = with_epilogue(operation, product[np.newaxis], product[np.newaxis], {})
    unfused = to_float64(quantize(gelu(to_float64(quantize(product, F16))), F16))
    error = np.abs(unfused - reference.value[0])
    assert error.max() > 2.0**-25  # more than half of the smallest number
    assert (error <= bound_rule(operation, reference).fail(reference)[0]).all()


def test_exact_sums_leave_only_the_final_rounding():
    """No room is left for tf32."""
    bf16 = parse_operation("matmul_8x8x4096_bf16t_bf16t_bf16t")
    assert bounds(bf16, 1.0, 50.0, folded_terms=0)[0] == pytest.approx(2.0**-8, rel=1e-6)
    exactly = bounds(LONG, 1.0, 50.0, Trait.TF32, folded_terms=0)
    assert exactly[1] == pytest.approx(2.0**-24, rel=1e-6)


def test_cancellation_is_judged_by_the_magnitude_and_bounds_are_never_zero():
    warn, _ = bounds(parse_operation("matmul_8x8x1024_f32t_f32t_f32t"), 0.0, 1000.0)
    assert warn == pytest.approx(1000 * probabilistic_error(1024, 2.0**-24), rel=1e-3)
    assert (bounds(parse_operation("matmul_1x1x4_f64t_f64t_f64t"), 0.0, 0.0) > 0).all()


@pytest.mark.parametrize(("suffix", "expected"), [
    ("", True), ("_relu", True), ("_alpha0p5", True), ("_alpham2_relu", True), ("_alpha0", True),
    ("_alpha0p3", False), ("_beta1", False), ("_bias", False), ("_gelu", False),
])  # fmt: skip
def test_rounds_once(suffix, expected):
    assert rounds_once(parse_operation(f"matmul_8x8x8_f32t_f32t_f32t{suffix}")) is expected


def added(operation, trait, *numbers, sizes=SIZES):
    """What a declaration adds to the bounds."""
    numbers = numbers or (1.0, 2.0)
    declared = bounds(operation, *numbers, trait, sizes=sizes)
    return declared - bounds(operation, *numbers, sizes=sizes)


def test_what_rounding_may_be_declared():
    bf16 = parse_operation("matmul_1x1x64_bf16t_bf16t_bf16t")
    c_added = parse_operation("matmul_1x1x64_bf16t_bf16t_bf16t_beta1")
    assert not added(LONG, Trait.NONDETERMINISTIC).any(), "any order is within every bound already"
    assert not added(LONG, Trait.ROUNDS_BEFORE_ADDING).any()
    once = added(c_added, Trait.ROUNDS_BEFORE_ADDING)
    assert once == pytest.approx([2.0 * 2**-8] * 2, rel=0.1)
    assert added(bf16, Trait.STOCHASTIC_ROUNDING) == pytest.approx([2.0**-8] * 2), "a whole ulp"


@pytest.mark.parametrize(("sizes", "norm"), [(SIZES, 64 * 6), (None, 2.0)])
def test_norms_of_the_operands_bound_fast_algorithms(sizes, norm):
    """The largest magnitude stands for norms that are not known."""
    found = added(LONG, Trait.NORMWISE, sizes=sizes)
    assert found == pytest.approx([tier * norm for tier in normwise_error(LONG)])


def test_flushing_costs_a_smallest_normal_of_each_format():
    operation = parse_operation("matmul_1x1x64_f16t_f16t_f16t")
    found = bounds(operation, 0.0, 0.0, Trait.FLUSHES_SUBNORMALS, sizes=SIZES)
    assert found == pytest.approx([64 * 2.0**-14 * (2 + 3) + 2.0**-14] * 2)
    assert bounds(operation, 0.0, 0.0, sizes=SIZES)[1] < 2.0**-23
