from __future__ import annotations

import math
from types import SimpleNamespace

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


def scalar_reference(value, magnitude, extra=None):
    return Reference(
        np.array([[value]]), np.array([[magnitude]]), None if extra is None else np.array([[extra]])
    )


def error_bounds(operation, reference, **how):
    """Both bounds for every element of `reference`; `how` is for the rule."""
    rule = bound_rule(operation, reference, **how)
    return SimpleNamespace(warn=rule.warn(reference), fail=rule.fail(reference))


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


@pytest.mark.parametrize("accumulator", ["f16", "bf16"])
def test_narrow_accumulators_are_capped_so_that_zeros_never_pass(accumulator):
    formats = f"{accumulator}t_{accumulator}t_{accumulator}t_acc{accumulator}"
    operation = parse_operation(f"matmul_8x8x65536_{formats}")
    error = accumulation_error(operation)
    assert error.fail == MEANINGLESS
    bounds = error_bounds(operation, scalar_reference(1000.0, 1000.0))
    assert bounds.fail[0, 0] < 1000.0


def test_unfused_epilogues_fail_no_bound_but_the_warn_one():
    operation = parse_operation("matmul_8x8x64_bf16t_bf16t_bf16t_bias")
    plain = scalar_reference(1.0, 2.0)
    with_extra = scalar_reference(1.0, 2.0, extra=3.0)
    added = error_bounds(operation, with_extra).fail - error_bounds(operation, plain).fail
    assert added[0, 0] == pytest.approx(3.0 * 2**-8)
    assert (error_bounds(operation, with_extra).warn == error_bounds(operation, plain).warn).all()


def test_unfused_epilogues_may_underflow_before_each_step():
    """One product of f16 numbers, rounded to a subnormal f16 number and followed by gelu."""
    operation = parse_operation("matmul_1x2047x1_f16t_f16n_f16t_gelu")
    product = (np.arange(1, 2048) - 0.499) * 2.0**-24
    reference = with_epilogue(operation, product[np.newaxis], product[np.newaxis], {})
    unfused = to_float64(quantize(gelu(to_float64(quantize(product, F16))), F16))
    error = np.abs(unfused - reference.value[0])
    assert error.max() > 2.0**-25  # more than half of the smallest number
    assert (error <= error_bounds(operation, reference).fail[0]).all()


def test_exact_sums_leave_only_the_final_rounding():
    operation = parse_operation("matmul_8x8x4096_bf16t_bf16t_bf16t")
    bounds = error_bounds(operation, scalar_reference(1.0, 50.0), folded_terms=0)
    assert bounds.warn[0, 0] == pytest.approx(2.0**-8, rel=1e-6)


def test_cancellation_is_judged_by_the_magnitude_and_bounds_are_never_zero():
    operation = parse_operation("matmul_8x8x1024_f32t_f32t_f32t")
    bounds = error_bounds(operation, scalar_reference(0.0, 1000.0))
    assert bounds.warn[0, 0] == pytest.approx(1000 * probabilistic_error(1024, 2.0**-24), rel=1e-3)
    operation = parse_operation("matmul_1x1x4_f64t_f64t_f64t")
    bounds = error_bounds(operation, scalar_reference(0.0, 0.0))
    assert bounds.warn[0, 0] > 0 and bounds.fail[0, 0] > 0


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [("", True), ("_relu", True), ("_alpha0p5", True), ("_alpham2_relu", True), ("_alpha0", True),
     ("_alpha0p3", False), ("_beta1", False), ("_bias", False), ("_gelu", False)],
)  # fmt: skip
def test_rounds_once(suffix, expected):
    assert rounds_once(parse_operation(f"matmul_8x8x8_f32t_f32t_f32t{suffix}")) is expected


class TestDeclared:
    sizes = OperandSizes(lhs=2.0, rhs=3.0, scale=1.0)
    f32 = parse_operation("matmul_1x1x64_f32t_f32t_f32t")

    def bounds(self, operation, *declared, value=1.0, magnitude=2.0, sizes=sizes):
        reference = Reference(np.array([[value]]), np.array([[magnitude]]), None, sizes)
        bounds = error_bounds(operation, reference, declared=declared)
        return float(bounds.warn[0, 0]), float(bounds.fail[0, 0])

    def test_another_order_is_within_every_bound_already(self):
        assert self.bounds(self.f32, Trait.NONDETERMINISTIC) == self.bounds(self.f32)

    def test_a_product_that_is_rounded_before_c_is_added_may_err_by_that_rounding(self):
        operation = parse_operation("matmul_1x1x64_bf16t_bf16t_bf16t_beta1")
        usual = self.bounds(operation)
        declared = self.bounds(operation, Trait.ROUNDS_BEFORE_ADDING)
        assert [more - less for more, less in zip(declared, usual, strict=True)] == pytest.approx(
            [2.0 * 2**-8] * 2, rel=0.1
        )
        assert self.bounds(self.f32, Trait.ROUNDS_BEFORE_ADDING) == self.bounds(self.f32)

    def test_norms_of_the_operands_bound_fast_algorithms(self):
        """The largest magnitude stands for norms that are not known."""
        tiers = normwise_error(self.f32)
        for sizes, norm in ((self.sizes, 64 * 6), (None, 2.0)):
            declared = self.bounds(self.f32, Trait.NORMWISE, sizes=sizes)
            added = np.subtract(declared, self.bounds(self.f32))
            assert added == pytest.approx([tier * norm for tier in tiers])

    def test_stochastic_rounding_is_granted_a_whole_ulp(self):
        operation = parse_operation("matmul_1x1x64_bf16t_bf16t_bf16t")
        added = np.subtract(
            self.bounds(operation, Trait.STOCHASTIC_ROUNDING), self.bounds(operation)
        )
        assert added == pytest.approx([2.0**-8, 2.0**-8])

    def test_flushing_costs_a_smallest_normal_of_each_format(self):
        operation = parse_operation("matmul_1x1x64_f16t_f16t_f16t")
        nothing = {"value": 0.0, "magnitude": 0.0}
        warn, fail = self.bounds(operation, Trait.FLUSHES_SUBNORMALS, **nothing)
        assert warn == fail == pytest.approx(64 * 2.0**-14 * (2 + 3) + 2.0**-14)
        assert self.bounds(operation, **nothing)[1] < 2.0**-23

    def test_exact_sums_leave_no_room_for_tf32(self):
        reference = scalar_reference(1.0, 50.0)
        bounds = error_bounds(self.f32, reference, folded_terms=0, declared=(Trait.TF32,))
        assert bounds.fail[0, 0] == pytest.approx(2.0**-24, rel=1e-6)
