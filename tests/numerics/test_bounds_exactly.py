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
        whole = {"nearest": round, "truncate": math.trunc}.get(mode, away_from_zero)
        return whole(value / step) * step

    return apply


def away_from_zero(value: Fraction) -> int:
    return math.ceil(value) if value > 0 else math.floor(value)


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


ORDERS = {order.__name__: order for order in (sequential, pairwise, kahan, split, blocks)}

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
    number = st.tuples(st.integers(low, 2**bits - 1), st.sampled_from(EXPONENTS))
    drawn = draw(st.lists(number, min_size=count, max_size=count))
    return [Fraction(m) * Fraction(2) ** (e - bits) for m, e in drawn]


def products_of(left, right):
    return [x * y for x, y in zip(left, right, strict=True)]


@st.composite
def products(draw, bits, count):
    return products_of(draw(numbers(bits, count)), draw(numbers(bits, count)))


def bounds_of(operation, products, *, sizes=None, declared=()):
    """Both bounds of a sum of `products`, of which `warn` is never the larger."""
    value, magnitude = sum(products), sum(map(abs, products))
    reference = Reference(np.array([[float(value)]]), np.array([[float(magnitude)]]), None, sizes)
    rule = bound_rule(operation, reference, declared=declared)
    warn, fail = (Fraction(tier(reference)[0, 0]) for tier in (rule.warn, rule.fail))
    assert warn <= fail
    return warn, fail


def rounded_to(result: str, value: Fraction, mode: str = "nearest") -> Fraction:
    return rounding(DTYPES[result].significand_bits, mode)(value)


@settings(max_examples=200)
@given(st.data(), FORMATS, st.integers(1, 33), st.sampled_from(sorted(ORDERS)), st.booleans())
def test_any_order_of_any_formats_is_within_the_fail_bound(data, formats, k, order, truncates):
    lhs, rhs, accumulator, result = (DTYPES[name] for name in formats)
    kind = OperationKind.MATMUL_SPLITK if order == "split" else OperationKind.MATMUL
    slices = 3 if order == "split" else 1
    signature = Signature(kind, lhs, rhs, result, accumulator=accumulator, split_k_slices=slices)
    operation = Operation(signature, MatmulShape(1, 1, k))
    terms = products_of(*(data.draw(numbers(side.significand_bits, k)) for side in (lhs, rhs)))
    once = rounding(accumulator.significand_bits, "truncate" if truncates else "nearest")
    got = rounded_to(result.name, ORDERS[order](terms, once))
    assert abs(got - sum(terms)) <= bounds_of(operation, terms)[1]


@settings(max_examples=60)
@given(st.data(), st.integers(1, 96), st.sampled_from(["bf16", "f32"]))
def test_fp8_sums_of_14_bits_are_within_the_fail_bound(data, k, result):
    """Hopper without promotion: 32 products a step, the running sum cut to 14 bits."""
    operation = parse_operation(f"matmul_1x1x{k}_e4m3t_e4m3t_{result}t")
    terms = data.draw(products(4, k))
    got = rounded_to(result, blocks(terms, rounding(14, "truncate"), 32))
    assert abs(got - sum(terms)) <= bounds_of(operation, terms)[1]


@settings(max_examples=100)
@given(st.data(), st.integers(1, 24), st.sampled_from(["nearest", "truncate"]))
def test_f32_by_tf32_is_within_the_bound_where_it_is_declared(data, k, mode):
    operation = parse_operation(f"matmul_1x1x{k}_f32t_f32t_f32t")
    sides = data.draw(numbers(24, k)), data.draw(numbers(24, k))
    cut = products_of(*(map(rounding(11, mode), side) for side in sides))
    got, terms = blocks(cut, rounding(24, "truncate"), 8), products_of(*sides)
    _, fail = bounds_of(operation, terms, declared={Trait.TF32})
    assert abs(got - sum(terms)) <= fail
    assert fail >= bounds_of(operation, terms)[1]


@settings(max_examples=100)
@given(st.data(), st.integers(1, 16), st.sampled_from(["bf16", "f16", "f32"]), st.booleans())
def test_stochastic_rounding_is_within_a_whole_ulp(data, k, result, goes_up):
    operation = parse_operation(f"matmul_1x1x{k}_bf16t_bf16t_{result}t")
    terms = data.draw(products(8, k))
    got = rounded_to(result, sequential(terms, rounding(24)), "up" if goes_up else "truncate")
    fail = bounds_of(operation, terms, declared={Trait.STOCHASTIC_ROUNDING})[1]
    assert abs(got - sum(terms)) <= fail


FLUSHES = {Trait.FLUSHES_SUBNORMALS}


@settings(max_examples=60)
@given(st.data(), st.integers(1, 12))
def test_flushed_inputs_are_within_the_bound_where_they_are_declared(data, k):
    operation = parse_operation(f"matmul_1x1x{k}_f16t_f16t_f32t")
    unit, normal = Fraction(1, 2**24), Fraction(1, 2**14)  # On the grid of subnormals.
    left = [round(x * normal / unit) * unit for x in data.draw(numbers(11, k))]
    right = data.draw(numbers(11, k))
    flushed = [x if abs(x) >= normal else Fraction(0) for x in left]
    got, terms = sum(products_of(flushed, right)), products_of(left, right)
    sizes = OperandSizes(float(max(map(abs, left))), float(max(map(abs, right))), 1.0)
    fail = bounds_of(operation, terms, sizes=sizes, declared=FLUSHES)[1]
    assert abs(got - sum(terms)) <= fail


def test_flushed_inputs_are_wrong_where_nothing_is_declared():
    operation = parse_operation("matmul_1x1x1_f16t_f16t_f32t")
    product, sizes = [Fraction(1, 2**15)], OperandSizes(2.0**-15, 1.0, 1.0)
    assert bounds_of(operation, product, sizes=sizes)[1] < product[0]
    assert bounds_of(operation, product, sizes=sizes, declared=FLUSHES)[1] >= product[0]


@settings(max_examples=100)
@given(st.data(), st.integers(1, 200), st.integers(0, 2**32))
def test_a_lost_product_of_either_sign_is_outside_the_fail_bound(data, k, seed):
    """f32, magnitudes in [0.5, 1]: a product is at least 1/4, the bound at most K²·2⁻²³."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.5, 1, (2, k)).astype(np.float32) * rng.choice([-1, 1], (2, k))
    terms = products_of(*(map(Fraction, side) for side in values.tolist()))
    lost = terms[data.draw(st.integers(0, k - 1))]
    assert abs(lost) > bounds_of(parse_operation(f"matmul_1x1x{k}_f32t_f32t_f32t"), terms)[1]


@pytest.mark.parametrize("trait", list(Trait))
@pytest.mark.parametrize(
    "formats", ["f32t_f32t_f32t", "bf16t_bf16t_bf16t", "f16t_f16t_f16t_accf16"]
)
def test_no_declaration_narrows_a_bound(trait, formats):
    operation = parse_operation(f"matmul_1x1x64_{formats}")
    terms, sizes = [Fraction(1, 3), Fraction(-2, 3)], OperandSizes(1.0, 1.0, 1.0)
    plain = bounds_of(operation, terms, sizes=sizes)
    widened = bounds_of(operation, terms, sizes=sizes, declared={trait})
    assert widened[0] >= plain[0] and widened[1] >= plain[1]
