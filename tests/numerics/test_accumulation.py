from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.record import Trait
from gemmetry.numerics.bounds import (
    MEANINGLESS,
    accumulation_error,
    accuracy_class,
    bound_rule,
    class_errors,
    gamma,
    normwise_error,
    probabilistic_error,
    rounding_count,
    rounds_to_tf32,
    tf32_input_error,
)
from gemmetry.numerics.inputs import exact_integer_limit, make_inputs
from gemmetry.numerics.references import compute_reference, factors_of_product, logical_tensors
from gemmetry.numerics.storage import round_to_tf32, to_float32, to_float64

FORMATS = [
    "f64t_f64t_f64t", "f32t_f32t_f32t", "tf32t_tf32t_f32t", "bf16t_bf16t_bf16t",
    "f16t_f16t_f16t_accf16", "bf16t_bf16t_bf16t_accbf16", "f32t_f32t_f64t",
]  # fmt: skip


def operation(formats, k=4096):
    return parse_operation(f"matmul_8x8x{k}_{formats}")


@pytest.mark.parametrize("k", [512, 4096, 65536])
def test_tiers_match_the_formulas(k):
    error = accumulation_error(operation("bf16t_bf16t_bf16t", k))
    assert error.warn == pytest.approx(6 * math.sqrt(k) * 2**-24 + k / 16 * 2**-23, rel=1e-4)
    assert error.fail == pytest.approx(k * 2**-23 / (1 - k * 2**-23), rel=1e-4)


@settings(max_examples=100)
@given(
    st.sampled_from([*FORMATS, "e4m3t_e4m3n_bf16t"]),
    st.integers(1, 10**6),
    st.sets(st.sampled_from(list(Trait))),
)
def test_warn_is_never_above_fail_nor_fail_above_what_means_anything(formats, k, declared):
    error = accumulation_error(operation(formats, k), declared=declared)
    assert 0 < error.warn <= error.fail <= MEANINGLESS
    fast = normwise_error(operation(formats, k))
    assert 0 < fast.warn <= fast.fail <= MEANINGLESS


@settings(max_examples=60)
@given(st.sampled_from(FORMATS), st.integers(1, 10**5), st.integers(1, 1000))
def test_longer_sums_may_err_more(formats, k, more):
    shorter, longer = operation(formats, k), operation(formats, k + more)
    for error in (accumulation_error, normwise_error):
        assert error(shorter).warn <= error(longer).warn
        assert error(shorter).fail <= error(longer).fail


@pytest.mark.parametrize(
    ("formats", "drift"), [("bf16t_bf16t_f32t", 1.2e-5), ("tf32t_tf32t_f32t", 2.8e-5)]
)
def test_drift_of_truncating_instructions_is_granted(formats, drift):
    """Mean error / M of cuBLAS on an H200 at K = 4096, see accumulation.py; 2.5 times that."""
    assert accumulation_error(operation(formats)).warn > 2.5 * drift


@pytest.mark.parametrize(("k", "promoted", "unpromoted"), [
    (256, 1.05e-3, 3.2e-3), (512, 9.0e-4, 7.5e-3), (1024, 7.9e-4, 1.6e-2),
    (4096, 6.3e-4, 7.1e-2), (16384, 5.6e-4, 0.272), (128, 1.33e-3, math.inf),
])  # fmt: skip
def test_fp8_tiers_part_what_an_h200_measured_with_and_without_promotion(k, promoted, unpromoted):
    """Largest errors / M of torch's _scaled_mm on [0.1, 1.1) and [0, 1), see accumulation.py."""
    fp8 = operation("e4m3t_e4m3n_bf16t", k)
    error = accumulation_error(fp8)
    assert promoted < error.warn < unpromoted
    if k > 128:
        assert (unpromoted > error.fail) == (k >= 512)
        fast = accumulation_error(fp8, declared=(Trait.FP8_FAST_ACCUMULATION,))
        assert unpromoted < fast.fail and error.warn < fast.warn <= fast.fail


def test_split_k_partials_add_their_roundings():
    plain = parse_operation("matmul_8x8x64_f16t_f16t_f32t")
    split = parse_operation("matmul_splitk_8x8x64_f16t_f16t_f32t_slices32")
    narrow = parse_operation("matmul_splitk_8x8x64_f16t_f16t_f16t_slices32_accf16")
    assert [rounding_count(o) for o in (plain, split, narrow)] == [64, 95, 127]
    for tier in (0, 1):
        assert accumulation_error(split)[tier] > accumulation_error(plain)[tier]


def test_f64_bounds_allow_for_the_reference_itself():
    fail = accumulation_error(operation("f64t_f64t_f64t", 100)).fail
    assert fail - gamma(100, 2.0**-52) == pytest.approx(gamma(100, 2.0**-53))
    assert gamma(10, 2.0**-24) == pytest.approx(10 * 2.0**-24, rel=1e-5)
    assert gamma(2**24, 2.0**-24) == math.inf


def test_only_f32_inputs_are_rounded_to_tf32():
    declared = (Trait.TF32,)
    assert rounds_to_tf32(operation("f32t_f32t_f32t"), declared)
    assert not rounds_to_tf32(operation("f32t_f32t_f32t"), ())
    assert not rounds_to_tf32(operation("bf16t_bf16t_f32t"), declared)


@pytest.mark.parametrize("k", [1, 16, 4096])
@pytest.mark.parametrize("low", [0.0, 0.1, -1.0])
@pytest.mark.parametrize(
    "narrow", [lambda x: (x.view(np.uint32) & np.uint32(0xFFFFE000)).view("f4"), round_to_tf32]
)
def test_tiers_of_tf32_hold_for_random_data(k, narrow, low):
    """Products of rounded and of given inputs, compared in float64."""
    a, b = np.random.default_rng(k).uniform(low, 1.0, (2, 64, k)).astype(np.float32)
    exact, rounded, magnitude = (
        to_float64(change(a)) @ to_float64(change(b)).T for change in (np.array, narrow, np.abs)
    )
    error, tiers = np.abs(rounded - exact), tf32_input_error(k)
    assert tiers.warn == pytest.approx(min((2 + 5 / math.sqrt(k)) * 2**-11, tiers.fail))
    assert (error <= tiers.fail * magnitude).all()
    assert (error <= tiers.warn * magnitude).mean() > 0.999


def winograd(a, b, levels):
    """A·B in float32 by recursion on halves: Higham 2002, equation (23.6), whose errors are larger
    than those of Strassen's own (23.4)."""
    if levels == 0:
        return a @ b
    (a11, a12), (a21, a22) = (np.hsplit(half, 2) for half in np.vsplit(a, 2))
    (b11, b12), (b21, b22) = (np.hsplit(half, 2) for half in np.vsplit(b, 2))
    s1 = a21 + a22
    s2, s3 = s1 - a11, a11 - a21
    t1 = b12 - b11
    t2, t3 = b22 - t1, b22 - b12
    factors = ((a11, b11), (a12, b21), (a12 - s2, b22), (a22, t2 - b21), (s1, t1), (s2, t2),
               (s3, t3))  # fmt: skip
    p1, p2, p3, p4, p5, p6, p7 = (winograd(x, y, levels - 1) for x, y in factors)
    u2 = p1 + p6
    u3 = u2 + p7
    return np.block([[p1 + p2, u2 + p5 + p3], [u3 - p4, u3 + p5]])


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("n", [8, 64, 256])
@pytest.mark.parametrize("kind", ["uniform", "normal", "scaled"])
def test_fast_algorithms_are_within_the_normwise_tiers(levels, n, kind):
    rng = np.random.default_rng(n)
    draw = rng.random if kind == "uniform" else rng.standard_normal
    a, b = draw((2, n, n)).astype("f4")
    if kind == "scaled":
        # Blocks of very different sizes: their differences lose what the small ones hold.
        a[: n // 2] *= np.float32(2**12)
        b[:, : n // 2] *= np.float32(2**-12)
    error = np.abs(winograd(a, b, levels) - to_float64(a) @ to_float64(b))
    norm = n * float(np.abs(a).max()) * float(np.abs(b).max())
    assert error.max() <= normwise_error(operation("f32t_f32t_f32t", n)).warn * norm
    if kind == "scaled":
        componentwise = probabilistic_error(n, 2.0**-24) * (np.abs(a) @ np.abs(b))
        assert (error > componentwise).any()


def _scaled_before_and_after(operation):
    """A product of blocks of 32 in float32, with f32 factors that use every bit: elements times
    their factors, and sums of blocks times the product of both factors. Then the reference."""
    inputs = list(make_inputs(operation, distribution="uniform", seed=4))
    rng = np.random.default_rng(4)
    for place in (2, 3):
        inputs[place] = rng.uniform(0.5, 2, inputs[place].shape).astype(np.float32)
    tensors = logical_tensors(operation, inputs)
    a, b = (to_float32(tensors[role]) for role in ("lhs", "rhs"))
    scale_a, scale_b = tensors["scale_a"], tensors["scale_b"]
    early = (a * np.repeat(scale_a, 32, axis=1)) @ (b * np.repeat(scale_b, 32, axis=0))
    late = np.zeros(operation.output.shape, np.float32)
    for block in range(scale_a.shape[1]):
        part = slice(32 * block, 32 * block + 32)
        late += (a[:, part] @ b[part]) * (scale_a[:, block, np.newaxis] * scale_b[block])
    return early, late, compute_reference(operation, inputs)


@pytest.mark.parametrize("k", [32, 1024])
def test_factors_of_blocks_may_apply_before_or_after_a_sum(k):
    """Elements of 4 bits, as the allowance for fp8 sums would hide the factors' roundings."""
    operation = parse_operation(f"matmul_40x30x{k}_e2m1t_e2m1n_f32t_vs1x32")
    early, late, reference = _scaled_before_and_after(operation)
    bound = bound_rule(operation, reference).warn(reference)
    for result in (early, late):
        assert (np.abs(to_float64(result) - reference.value) <= bound).all()
        assert (np.abs(to_float64(result) - reference.value) > 0).any()
    plain = parse_operation(f"matmul_40x30x{k}_e2m1t_e2m1n_f32t")
    assert rounding_count(operation) == rounding_count(plain) + 4


@pytest.mark.parametrize(
    "formats", ["e2m1t_e2m1n_f32t_vs16_e8m0", "e2m1t_e2m1n_f32t_vs16_e4m3",
                "e4m3t_e4m3n_f32t_vs1x128", "e5m2t_e4m3n_f32t_vs32_e8m0"],
)  # fmt: skip
@pytest.mark.parametrize("k", [64, 1024, 16384])
def test_integers_in_blocks_have_exact_sums(formats, k):
    """Every partial sum is a multiple of the least product of factors, and below 2^24 of them."""
    operation = parse_operation(f"matmul_3x3x{k}_{formats}")
    assert exact_integer_limit(operation) >= 1
    inputs = make_inputs(operation, distribution="integers", seed=1)
    a, b = factors_of_product(operation, logical_tensors(operation, inputs))
    unit = 2.0**-4
    assert (a[:, :, np.newaxis] * b % unit == 0).all()
    assert (np.abs(a) @ np.abs(b)).max() <= 2**24 * unit
    depth = min(k, operation.signature.blocks.depth, 128)
    largest = float(np.abs(to_float64(inputs[0])).max() * np.abs(to_float64(inputs[1])).max())
    if operation.signature.lhs.is_fp8:
        assert depth * largest <= 2**13


@pytest.mark.parametrize(("formats", "classes"), [
    ("f64t_f64t_f64t", ["fp64", "fp32", "tf32"]),
    ("f32t_f32t_f32t", ["fp32", "tf32"]),
    ("bf16t_bf16t_bf16t", ["fp32-accumulated"]),
    ("e4m3t_e4m3n_bf16t", ["fp32-accumulated", "fp8-promoted", "fp8-14bit"]),
])  # fmt: skip
def test_classes_in_order_of_their_errors(formats, classes):
    narrow = ["fp16-accumulated", "bf16-accumulated"]
    assert list(class_errors(operation(formats))) == [*classes, *narrow]


@pytest.mark.parametrize(("formats", "classes"), [
    ("f64t_f64t_f64t", {1e-15: "fp64", 1e-6: "fp32"}),
    ("f32t_f32t_f32t", {-1.0: "fp32", 5e-4: "tf32"}),
    ("bf16t_bf16t_f32t", {1e-6: "fp32-accumulated", 0.1: "fp16-accumulated",
                          1.0: "bf16-accumulated", 100.0: "none", math.nan: "none"}),
    ("e4m3t_e4m3n_bf16t", {6.3e-4: "fp8-promoted", 8e-2: "fp8-14bit"}),
    ("s8t_s8t_s32t", {0.0: "exact", 1.0: "none"}),
])  # fmt: skip
def test_smallest_class_that_holds(formats, classes):
    assert {error: accuracy_class(operation(formats), error) for error in classes} == classes
