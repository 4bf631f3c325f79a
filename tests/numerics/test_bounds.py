from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dtypes import BF16, F16, F32
from gemmetry.domain.names import parse_operation
from gemmetry.numerics.bounds import (
    MEANINGLESS,
    accumulation_error,
    error_bounds,
    gamma,
    half_ulp,
    probabilistic_error,
    rounds_once,
)
from gemmetry.numerics.references import Reference, compute_reference
from gemmetry.numerics.storage import quantize, to_float64

FLOAT32 = st.floats(-100, 100, width=32).filter(lambda value: value == 0 or abs(value) > 1e-6)


def scalar_reference(value, magnitude, extra=None):
    return Reference(
        np.array([[value]]),
        np.array([[magnitude]]),
        None if extra is None else np.array([[extra]]),
    )


@settings(deadline=None, max_examples=150)
@given(st.data(), st.integers(1, 24), st.booleans())
def test_float32_sums_in_any_order_are_within_both_bounds(data, k, is_bf16_result):
    left = data.draw(st.lists(FLOAT32, min_size=k, max_size=k))
    right = data.draw(st.lists(FLOAT32, min_size=k, max_size=k))
    order = data.draw(st.permutations(range(k)))
    result = BF16 if is_bf16_result else F32
    operation = parse_operation(f"matmul_1x1x{k}_f32t_f32t_{result}t")
    total = np.float32(0)
    for index in order:
        total += np.float32(left[index]) * np.float32(right[index])
    got = Fraction(float(to_float64(quantize(np.array([total]), result))[0]))
    exact = sum(Fraction(x) * Fraction(y) for x, y in zip(left, right, strict=True))
    magnitude = sum(abs(Fraction(x) * Fraction(y)) for x, y in zip(left, right, strict=True))
    bounds = error_bounds(operation, scalar_reference(float(exact), float(magnitude)))
    assert abs(got - exact) <= Fraction(bounds.fail[0, 0])
    assert bounds.warn[0, 0] <= bounds.fail[0, 0]


@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(1, 40))
def test_truncating_sums_are_within_the_fail_bound(data, k):
    """Every sum rounded towards zero at 24 bits, as tensor cores may do."""
    values = data.draw(
        st.lists(st.integers(1, 255), min_size=2 * k, max_size=2 * k).map(
            lambda numbers: [number / 64 for number in numbers]
        )
    )
    operation = parse_operation(f"matmul_1x1x{k}_bf16t_bf16t_f32t")
    total = Fraction(0)
    for x, y in zip(values[:k], values[k:], strict=True):
        total += Fraction(x) * Fraction(y)
        _, exponent = np.frexp(float(total))
        step = Fraction(2) ** (int(exponent) - 24)
        total = math.floor(total / step) * step
    exact = sum(Fraction(x) * Fraction(y) for x, y in zip(values[:k], values[k:], strict=True))
    bounds = error_bounds(operation, scalar_reference(float(exact), float(exact)))
    assert abs(total - exact) <= Fraction(bounds.fail[0, 0])


@settings(deadline=None, max_examples=200)
@given(st.floats(1e-3, 1e4), st.sampled_from([BF16, F16, F32]))
def test_half_ulp_is_half_the_gap_between_neighbours(value, dtype):
    half = float(half_ulp(np.array([value]), dtype)[0])
    rounded = float(to_float64(quantize(np.array([value]), dtype))[0])
    assert abs(rounded - value) <= half
    grid = value - math.fmod(value, 2 * half)
    neighbour = float(to_float64(quantize(np.array([grid + 2 * half]), dtype))[0])
    assert neighbour == grid + 2 * half
    assert half <= value * dtype.unit_roundoff


@pytest.mark.parametrize("k", [512, 4096, 65536])
def test_tiers_are_ordered_and_match_the_formulas(k):
    operation = parse_operation(f"matmul_8x8x{k}_bf16t_bf16t_bf16t")
    error = accumulation_error(operation)
    assert error.warn == pytest.approx(6 * math.sqrt(k) * 2**-24 + k / 16 * 2**-23, rel=1e-4)
    assert error.fail == pytest.approx(k * 2**-23 / (1 - k * 2**-23), rel=1e-4)
    assert error.warn < error.fail


def test_drift_of_truncating_instructions_is_granted():
    """Mean error / M of cuBLAS on an H200 at K = 4096, see bounds.py; 2.5 times it is granted."""
    for formats, drift in (("bf16t_bf16t_f32t", 1.2e-5), ("tf32t_tf32t_f32t", 2.8e-5)):
        assert accumulation_error(parse_operation(f"matmul_8x8x4096_{formats}")).warn > 2.5 * drift


def test_gamma_has_no_value_where_everything_may_be_lost():
    assert gamma(10, 2.0**-24) == pytest.approx(10 * 2.0**-24, rel=1e-5)
    assert gamma(2**24, 2.0**-24) == math.inf


@pytest.mark.parametrize("accumulator", ["f16", "bf16"])
def test_narrow_accumulators_are_capped_so_that_zeros_never_pass(accumulator):
    formats = f"{accumulator}t_{accumulator}t_{accumulator}t_acc{accumulator}"
    operation = parse_operation(f"matmul_8x8x65536_{formats}")
    error = accumulation_error(operation)
    assert error.fail == MEANINGLESS
    bounds = error_bounds(operation, scalar_reference(1000.0, 1000.0))
    assert bounds.fail[0, 0] < 1000.0


def test_fp8_tiers_part_what_an_h200_measured_with_and_without_promotion():
    """Largest errors / M of torch's _scaled_mm on [0.1, 1.1) and [0, 1), see bounds.py."""
    measured = {
        256: (1.05e-3, 3.2e-3),
        512: (9.0e-4, 7.5e-3),
        1024: (7.9e-4, 1.6e-2),
        4096: (6.3e-4, 7.1e-2),
        16384: (5.6e-4, 0.272),
    }
    for k, (promoted, unpromoted) in measured.items():
        error = accumulation_error(parse_operation(f"matmul_8x8x{k}_e4m3t_e4m3n_bf16t"))
        assert promoted < error.warn < unpromoted < error.fail
    assert accumulation_error(parse_operation("matmul_8x8x128_e4m3t_e4m3n_bf16t")).warn > 1.33e-3


def test_split_k_partials_add_their_roundings():
    plain = accumulation_error(parse_operation("matmul_8x8x64_f16t_f16t_f32t"))
    split = accumulation_error(parse_operation("matmul_splitk_8x8x64_f16t_f16t_f32t_slices32"))
    assert split.warn > plain.warn and split.fail > plain.fail


def test_integers_have_no_bound_but_equality():
    operation = parse_operation("matmul_2x2x4_s8t_s8t_s32t")
    reference = Reference(np.ones((2, 2), np.int64), np.ones((2, 2)))
    bounds = error_bounds(operation, reference)
    assert not bounds.warn.any() and not bounds.fail.any()


def test_f64_bounds_allow_for_the_reference_itself():
    operation = parse_operation("matmul_8x8x100_f64t_f64t_f64t")
    assert accumulation_error(operation).fail >= gamma(100, 2.0**-52) + gamma(100, 2.0**-53)


def test_unfused_epilogues_fail_no_bound_but_the_warn_one():
    operation = parse_operation("matmul_8x8x64_bf16t_bf16t_bf16t_bias")
    plain = scalar_reference(1.0, 2.0)
    with_extra = scalar_reference(1.0, 2.0, extra=3.0)
    added = error_bounds(operation, with_extra).fail - error_bounds(operation, plain).fail
    assert added[0, 0] == pytest.approx(3.0 * 2**-8)
    assert (error_bounds(operation, with_extra).warn == error_bounds(operation, plain).warn).all()


def test_exact_sums_leave_only_the_final_rounding():
    operation = parse_operation("matmul_8x8x4096_bf16t_bf16t_bf16t")
    bounds = error_bounds(operation, scalar_reference(1.0, 50.0), exact_sums=True)
    assert bounds.warn[0, 0] == pytest.approx(2.0**-8, rel=1e-6)


def test_cancellation_is_judged_by_the_magnitude():
    operation = parse_operation("matmul_8x8x1024_f32t_f32t_f32t")
    bounds = error_bounds(operation, scalar_reference(0.0, 1000.0))
    assert bounds.warn[0, 0] == pytest.approx(1000 * probabilistic_error(1024, 2.0**-24), rel=1e-3)


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [("", True), ("_relu", True), ("_alpha0p5", True), ("_alpham2_relu", True), ("_alpha0", True),
     ("_alpha0p3", False), ("_beta1", False), ("_bias", False), ("_gelu", False)],
)  # fmt: skip
def test_rounds_once(suffix, expected):
    assert rounds_once(parse_operation(f"matmul_8x8x8_f32t_f32t_f32t{suffix}")) is expected


def test_reference_of_real_inputs_is_within_bounds_of_itself():
    operation = parse_operation("matmul_8x8x64_f16t_f16t_f16t_bias_gelu")
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=spec.storage_shape).astype(np.float16) for spec in operation.inputs]
    reference = compute_reference(operation, inputs)
    bounds = error_bounds(operation, reference)
    rounding = np.abs(to_float64(quantize(reference.value, F16)) - reference.value)
    assert (rounding <= bounds.warn).all()
    assert (bounds.warn <= bounds.fail).all()
