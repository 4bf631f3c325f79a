"""How far a right result may be from the reference: two tiers, element by element.

::

    |got - reference| <= E·M + half_ulp(|reference| + E·M) + absolute

with M the magnitude |A||B| (carried through the epilogue), half_ulp half the distance between
neighbours in the result format (at most u_out·|x|), absolute the cost of underflow, and E the
error of the accumulation:

=====  ==========================================  ============================================
tier   E                                           meaning when exceeded
=====  ==========================================  ============================================
warn   6·√n·u + (n/16)·2u                          unusual; may still be right
fail   γ_n(2u) = 2nu / (1 - 2nu)                   no right kernel does this
=====  ==========================================  ============================================

n counts the roundings of one element (K products and sums, the sums over split-k slices), u is
the unit roundoff of the accumulator. Sources:

* γ_n holds for any order of summation: Higham, "Accuracy and Stability of Numerical Algorithms",
  2nd ed., section 3.1. 2u instead of u because tensor cores truncate instead of rounding
  (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021).
* λ·√n·u with λ = 6 is exceeded with a chance of 2·exp(-λ²/2) = 3e-8 an element: Higham & Mary,
  "A new approach to probabilistic rounding error analysis", SISC 2019, theorem 2.4.
* (n/16)·2u is the drift of truncation on same-sign data, one truncation for each block of 16
  products: block FMA, Blanchard, Higham, Lopez, Mary, Pranesh, SISC 2020. In an emulation of
  16-blocks truncated to 24 bits on U[0, 1) the largest error / M was 5.9e-6, 2.3e-5 and 8.4e-5
  at K = 4096, 16384 and 65536, against 5.3e-5, 1.7e-4 and 5.8e-4 from this formula. An H200
  drifts more: at K = 4096 on [0.1, 1.1) the mean error / M of cuBLAS was -1.2e-5 for bf16 and
  -2.8e-5 for tf32, whose instructions add 8 products, so that n/16 is n/8 there.
* Products of two bf16, f16, tf32 or fp8 numbers are exact in float32 (at most 22 significand
  bits), so inputs add no term. Inputs of tf32 operations are tf32 numbers already; f32 means
  f32, and a kernel that rounds f32 inputs to tf32 is not one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gemmetry.domain.dtypes import BF16, F32, F64, TF32, DType
from gemmetry.domain.operation import EpilogueStep, Operation, Scaling
from gemmetry.numerics.references import Reference
from gemmetry.numerics.storage import Float64Array, smallest_normal, smallest_subnormal, to_float64

LAMBDA = 6.0
"""λ of the probabilistic bound."""

BLOCK = 16
"""Products that tensor cores add before they truncate once: k of the bf16 and f16 instructions."""

TF32_BLOCK = 8
"""The same for tf32 (PTX ISA, wgmma and mma shapes)."""

FP8_UNIT = 2.0**-13
"""One truncation of Hopper's fp8 accumulator, which keeps 14 bits (PyTorch blog, "Some Matrix
Multiplication Engines Are Not As Accurate As We Thought"; DeepSeek-V3 report, section 3.5.2)."""

FP8_PROMOTION_INTERVAL = 128
"""Products after which libraries move an fp8 sum to a float32 accumulator (DeepSeek-V3 report)."""

MEANINGLESS = 0.5
"""No tier allows E above this: an error of half of M leaves nothing of an answer. It binds only
for 16-bit accumulators, whose γ_n has no finite value beyond n = 1/(2u)."""

GELU_ROUNDINGS = 16
"""Roundings granted to an evaluation of gelu in the accumulator's format: CUDA's erff is within
2 ulp (CUDA Math API, table of maximum errors), polynomial ones of compilers within about 8."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Largest errors allowed, element by element, in the shape of the reference; 0: exact."""

    warn: Float64Array
    fail: Float64Array


class AccumulationError(NamedTuple):
    """E of the two tiers, in units of M."""

    warn: float
    fail: float


def error_bounds(operation: Operation, reference: Reference, *, exact_sums: bool = False) -> Bounds:
    """Both bounds for every element of `reference` (which may be a piece of the whole).

    Args:
        exact_sums: the inputs were made so that sums round nothing; only the epilogue and the
            final rounding may err.
    """
    if operation.signature.lhs.is_integer:
        zero = np.zeros(reference.value.shape)
        return Bounds(zero, zero)
    error = accumulation_error(operation, exact_sums=exact_sums)
    size = np.abs(to_float64(reference.value))
    warn = _bound(operation, reference, size, error.warn)
    fail = _bound(operation, reference, size, error.fail)
    extra = reference.extra_rounding
    if extra is not None:
        # An epilogue may keep its intermediates in the result format; a fused one does not.
        extra = operation.signature.result.unit_roundoff * extra
        fail += extra
        if exact_sums:
            warn += extra
    warn += _absolute(operation, flushed=False)
    fail += _absolute(operation, flushed=True)
    return Bounds(np.minimum(warn, fail), fail)


def half_ulp(size: Float64Array, dtype: DType) -> Float64Array:
    """Half the distance between neighbours of `dtype` at each of the (non-negative) `size`:
    2**(e - p) for sizes in [2**e, 2**(e + 1)); 0 below float64's normal numbers."""
    exponent_bits = size.view(np.uint64) & np.uint64(0x7FF0_0000_0000_0000)
    power: Float64Array = exponent_bits.view(np.float64)
    power *= dtype.unit_roundoff
    return power


def _bound(
    operation: Operation, reference: Reference, size: Float64Array, error: float
) -> Float64Array:
    drift: Float64Array = error * reference.magnitude
    bound = half_ulp(size + drift, operation.signature.result)
    bound += drift
    return bound


def accumulation_error(operation: Operation, *, exact_sums: bool = False) -> AccumulationError:
    """E of both tiers for `operation`: see the head of this module."""
    s = operation.signature
    unit = s.accumulator.unit_roundoff
    after = _epilogue_roundings(operation) * 2 * unit
    if exact_sums:
        return AccumulationError(after, after)
    count = operation.matmul_shape.k + s.split_k_slices - 1
    block = TF32_BLOCK if TF32 in (s.lhs, s.rhs) else BLOCK
    warn = probabilistic_error(count, unit, block) + after
    fail = gamma(count, 2 * unit) + after
    if s.lhs.is_fp8 or s.rhs.is_fp8:
        warn += fp8_promoted_error(count)
        fail += fp8_unpromoted_error(count)
    # The float64 reference errs as well, which matters for f64 results alone.
    warn += probabilistic_error(count, F64.unit_roundoff)
    fail += gamma(count, F64.unit_roundoff)
    return AccumulationError(min(warn, MEANINGLESS / 2), min(fail, MEANINGLESS))


def probabilistic_error(count: int, unit: float, block: int = BLOCK) -> float:
    """The warn tier's E for `count` roundings of unit roundoff `unit`, truncated once a block."""
    return LAMBDA * math.sqrt(count) * unit + count / block * 2 * unit


def fp8_promoted_error(count: int) -> float:
    """What 14-bit sums that are promoted every 128 products may add to E.

    Measured on an H200 (torch 2.11, ``_scaled_mm`` without fast accumulation, 1024 × 1024 × K,
    e4m3 from U[0, 1)): the largest error / M was 1.33e-3, 1.05e-3, 7.9e-4, 6.3e-4, 5.6e-4 at
    K = 128, 256, 1024, 4096, 16384, which is (4.1 + 6.6·√(128/K))·2⁻¹³: a drift that does not
    shrink and a scatter that averages out. Granted is 1.5 times that.
    """
    scatter = math.sqrt(FP8_PROMOTION_INTERVAL / max(count, FP8_PROMOTION_INTERVAL))
    return (6 + 10 * scatter) * FP8_UNIT


def fp8_unpromoted_error(count: int) -> float:
    """What 14-bit sums that are never promoted may add to E: a mode that hardware offers, so no
    proof of a bug, but of a lower accuracy class.

    Measured as in :func:`fp8_promoted_error` with fast accumulation, on [0.1, 1.1): 3.2e-3,
    1.7e-2, 8.0e-2, 0.27 at K = 256, 1024, 4096, 16384: up to K/7·2⁻¹³. Granted is K/4·2⁻¹³.
    """
    return fp8_promoted_error(count) + count / 4 * FP8_UNIT


def gamma(count: int, unit: float) -> float:
    """γ_n = n·u / (1 - n·u); infinite where n·u >= 1 (Higham 2002, lemma 3.1)."""
    product = count * unit
    return product / (1 - product) if product < 1 else math.inf


def rounds_once(operation: Operation) -> bool:
    """True if on exact sums a right kernel rounds once only, to the result format, so that the
    result is known to the bit: no sum behind the product, alpha zero or ± a power of two."""
    s = operation.signature
    sums = {EpilogueStep.BIAS, EpilogueStep.RESIDUAL, EpilogueStep.GELU}.intersection(s.epilogue)
    return s.beta == 0 and not sums and abs(math.frexp(s.alpha)[0]) in (0.0, 0.5)


def _epilogue_roundings(operation: Operation) -> int:
    s = operation.signature
    roundings = (s.alpha != 1) + 2 * (s.beta != 0) + 2 * (s.scaling is not Scaling.NONE)
    roundings += sum(step in (EpilogueStep.BIAS, EpilogueStep.RESIDUAL) for step in s.epilogue)
    return roundings + GELU_ROUNDINGS * (EpilogueStep.GELU in s.epilogue)


def _absolute(operation: Operation, *, flushed: bool) -> float:
    """What underflow may cost, whatever the size of the result. ``flushed`` grants that compilers
    flush subnormal numbers of the formats with 8 exponent bits (CUDA's ``-ftz``)."""
    s = operation.signature
    products = operation.matmul_shape.k * _underflow(s.accumulator, flushed=flushed)
    return products + _underflow(s.result, flushed=flushed)


def _underflow(dtype: DType, *, flushed: bool) -> float:
    if flushed and dtype in (F32, BF16):
        return smallest_normal(dtype)
    return smallest_subnormal(dtype) / 2
