"""The bounds against exact arithmetic: no right result is outside the fail bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import DTYPES, MatmulShape, Operation, OperationKind, Signature
from gemmetry.domain.record import Trait
from gemmetry.numerics.bounds import bound_rule
from gemmetry.numerics.references import OperandSizes, Reference

Rounding = Callable[[Fraction], Fraction]


def rounding(bits: int, mode: str = "nearest") -> Rounding:
    """Rounds to `bits` significand bits, without limits of exponent: ``nearest`` (even),
    ``truncate`` (towards zero), ``up`` (away from zero)."""

    def apply(value: Fraction) -> Fraction:
        if value == 0:
            return value
        exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
        if abs(value) < Fraction(2) ** exponent:
            exponent -= 1
        step = Fraction(2) ** (exponent - bits + 1)
        scaled = value / step
        if mode == "nearest":
            whole = round(scaled)
        elif mode == "truncate":
            whole = math.trunc(scaled)
        else:
            whole = math.copysign(math.ceil(abs(scaled)), scaled)
        return int(whole) * step

    return apply


def sequential(products: Sequence[Fraction], once: Rounding) -> Fraction:
    total = Fraction(0)
    for product in products:
        total = once(total + once(product))
    return total


def pairwise(products: Sequence[Fraction], once: Rounding) -> Fraction:
    if len(products) == 1:
        return once(products[0])
    half = len(products) // 2
    return once(pairwise(products[:half], once) + pairwise(products[half:], once))


def kahan(products: Sequence[Fraction], once: Rounding) -> Fraction:
    total = lost = Fraction(0)
    for product in products:
        term = once(once(product) - lost)
        summed = once(total + term)
        lost = once(once(summed - total) - term)
        total = summed
    return total


def split(products: Sequence[Fraction], once: Rounding, slices: int = 3) -> Fraction:
    """Partial sums of every third product, rounded again when they are stored."""
    partials = [once(sequential(products[i::slices], once)) for i in range(slices)]
    return sequential(partials, once)


def blocks(products: Sequence[Fraction], once: Rounding, size: int = 16) -> Fraction:
    """As matrix instructions do: `size` products and the running sum, added exactly, round once."""
    total = Fraction(0)
    for start in range(0, len(products), size):
        total = once(total + sum(products[start : start + size]))
    return total


ORDERS = {
    "sequential": sequential,
    "pairwise": pairwise,
    "kahan": kahan,
    "split": split,
    "blocks": blocks,
}

EXPONENTS = range(-5, 6)

FORMATS = st.sampled_from(
    [
        ("f32", "f32", "f32", "f32"), ("f32", "f32", "f32", "bf16"), ("f64", "f64", "f64", "f64"),
        ("f32", "f32", "f64", "f64"), ("bf16", "bf16", "f32", "bf16"),
        ("bf16", "bf16", "f32", "f32"), ("f16", "f16", "f32", "f16"), ("f16", "f16", "f16", "f16"),
        ("bf16", "bf16", "bf16", "bf16"), ("tf32", "tf32", "f32", "f32"),
        ("e4m3", "e4m3", "f32", "bf16"), ("e5m2", "e4m3", "f32", "f16"),
        ("f16", "f16", "f32", "e4m3"), ("bf16", "f32", "f32", "f32"),
    ]
)  # fmt: skip
"""(A, B, accumulator, result)."""


@st.composite
def numbers(draw, bits, count):
    """Numbers of `bits` significand bits, of either sign or all positive, small enough for all."""
    low = 1 if draw(st.booleans()) else -(2**bits - 1)
    mantissas = draw(st.lists(st.integers(low, 2**bits - 1), min_size=count, max_size=count))
    exponents = draw(st.lists(st.sampled_from(EXPONENTS), min_size=count, max_size=count))
    return [
        Fraction(m) * Fraction(2) ** (e - bits) for m, e in zip(mantissas, exponents, strict=True)
    ]


def bounds_of(operation, products, *, sizes=None, declared=()):
    value, magnitude = sum(products), sum(map(abs, products))
    reference = Reference(np.array([[float(value)]]), np.array([[float(magnitude)]]), None, sizes)
    rule = bound_rule(operation, reference, declared=declared)
    return Fraction(rule.warn(reference)[0, 0]), Fraction(rule.fail(reference)[0, 0])


@settings(max_examples=300)
@given(st.data(), FORMATS, st.integers(1, 33), st.sampled_from(sorted(ORDERS)), st.booleans())
def test_any_order_of_any_formats_is_within_the_fail_bound(data, formats, k, order, truncates):
    lhs, rhs, accumulator, result = (DTYPES[name] for name in formats)
    kind = OperationKind.MATMUL_SPLITK if order == "split" else OperationKind.MATMUL
    slices = 3 if order == "split" else 1
    signature = Signature(kind, lhs, rhs, result, accumulator=accumulator, split_k_slices=slices)
    operation = Operation(signature, MatmulShape(1, 1, k))
    left = data.draw(numbers(lhs.significand_bits, k))
    right = data.draw(numbers(rhs.significand_bits, k))
    products = [x * y for x, y in zip(left, right, strict=True)]
    once = rounding(accumulator.significand_bits, "truncate" if truncates else "nearest")
    total = ORDERS[order](products, once)
    got = rounding(result.significand_bits)(total)
    warn, fail = bounds_of(operation, products)
    assert abs(got - sum(products)) <= fail
    assert warn <= fail


def drawn_products(data, bits, k):
    left, right = (data.draw(numbers(bits, k)) for _ in range(2))
    return [x * y for x, y in zip(left, right, strict=True)]


@settings(max_examples=60)
@given(st.data(), st.integers(1, 96), st.sampled_from(["bf16", "f32"]))
def test_fp8_sums_of_14_bits_are_within_the_fail_bound(data, k, result):
    """Hopper without promotion: 32 products a step, the running sum cut to 14 bits."""
    operation = parse_operation(f"matmul_1x1x{k}_e4m3t_e4m3t_{result}t")
    products = drawn_products(data, 4, k)
    total = blocks(products, rounding(14, "truncate"), 32)
    got = rounding(DTYPES[result].significand_bits)(total)
    assert abs(got - sum(products)) <= bounds_of(operation, products)[1]


@settings(max_examples=100)
@given(st.data(), st.integers(1, 24), st.sampled_from(["nearest", "truncate"]))
def test_f32_by_tf32_is_within_the_bound_where_it_is_declared(data, k, mode):
    operation = parse_operation(f"matmul_1x1x{k}_f32t_f32t_f32t")
    left, right = data.draw(numbers(24, k)), data.draw(numbers(24, k))
    narrow = rounding(11, mode)
    cut = [narrow(x) * narrow(y) for x, y in zip(left, right, strict=True)]
    got = blocks(cut, rounding(24, "truncate"), 8)
    products = [x * y for x, y in zip(left, right, strict=True)]
    warn, fail = bounds_of(operation, products, declared={Trait.TF32})
    assert abs(got - sum(products)) <= fail
    assert warn <= fail
    assert fail >= bounds_of(operation, products)[1]


@settings(max_examples=100)
@given(st.data(), st.integers(1, 16), st.sampled_from(["bf16", "f16", "f32"]), st.booleans())
def test_stochastic_rounding_is_within_a_whole_ulp(data, k, result, goes_up):
    operation = parse_operation(f"matmul_1x1x{k}_bf16t_bf16t_{result}t")
    products = drawn_products(data, 8, k)
    total = sequential(products, rounding(24))
    got = rounding(DTYPES[result].significand_bits, "up" if goes_up else "truncate")(total)
    fail = bounds_of(operation, products, declared={Trait.STOCHASTIC_ROUNDING})[1]
    assert abs(got - sum(products)) <= fail


@settings(max_examples=60)
@given(st.data(), st.integers(1, 12))
def test_flushed_inputs_are_within_the_bound_where_they_are_declared(data, k):
    operation = parse_operation(f"matmul_1x1x{k}_f16t_f16t_f32t")
    tiny = [x * Fraction(1, 2**14) for x in data.draw(numbers(11, k))]
    left = [round(x * 2**24) * Fraction(1, 2**24) for x in tiny]  # On the grid of subnormals.
    right = data.draw(numbers(11, k))
    flushed = [x if abs(x) >= Fraction(1, 2**14) else Fraction(0) for x in left]
    got = sum((x * y for x, y in zip(flushed, right, strict=True)), Fraction(0))
    products = [x * y for x, y in zip(left, right, strict=True)]
    sizes = OperandSizes(float(max(map(abs, left))), float(max(map(abs, right))), 1.0)
    declared = {Trait.FLUSHES_SUBNORMALS}
    assert (
        abs(got - sum(products))
        <= bounds_of(operation, products, sizes=sizes, declared=declared)[1]
    )


def test_flushed_inputs_are_wrong_where_nothing_is_declared():
    operation = parse_operation("matmul_1x1x1_f16t_f16t_f32t")
    product = [Fraction(1, 2**15)]
    sizes = OperandSizes(2.0**-15, 1.0, 1.0)
    assert bounds_of(operation, product, sizes=sizes)[1] < product[0]
    declared = {Trait.FLUSHES_SUBNORMALS}
    assert bounds_of(operation, product, sizes=sizes, declared=declared)[1] >= product[0]


@settings(max_examples=100)
@given(st.data(), st.integers(1, 200), st.integers(0, 2**32))
def test_a_lost_product_of_either_sign_is_outside_the_fail_bound(data, k, seed):
    """f32, magnitudes in [0.5, 1]: a product is at least 1/4, the bound at most K²·2⁻²³."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.5, 1, (2, k)).astype(np.float32) * rng.choice([-1, 1], (2, k))
    products = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(*values, strict=True)]
    lost = data.draw(st.integers(0, k - 1))
    got = sum(products) - products[lost]
    operation = parse_operation(f"matmul_1x1x{k}_f32t_f32t_f32t")
    assert abs(got - sum(products)) > bounds_of(operation, products)[1]


@pytest.mark.parametrize("trait", list(Trait))
def test_no_declaration_narrows_a_bound(trait):
    for formats in ("f32t_f32t_f32t", "bf16t_bf16t_bf16t", "f16t_f16t_f16t_accf16"):
        operation = parse_operation(f"matmul_1x1x64_{formats}")
        products = [Fraction(1, 3), Fraction(-2, 3)]
        sizes = OperandSizes(1.0, 1.0, 1.0)
        plain = bounds_of(operation, products, sizes=sizes)
        widened = bounds_of(operation, products, sizes=sizes, declared={trait})
        assert widened[0] >= plain[0] and widened[1] >= plain[1]
        assert widened[0] <= widened[1]
