"""E, the error of an accumulation in units of its magnitude M = |A||B|, in two tiers.

=====  ==========================================  ============================================
tier   E                                           meaning when exceeded
=====  ==========================================  ============================================
warn   6·√n·u + (n/16)·2u, at most E of fail       unusual; may still be right
fail   γ_n(2u) = 2nu / (1 - 2nu)                   no right kernel does this
=====  ==========================================  ============================================

n counts the roundings of one element (K products and sums, the sums over split-k slices).
u is the unit roundoff of the accumulator. Sources:

* γ_n holds for any order of summation: Higham, "Accuracy and Stability of Numerical Algorithms",
  2nd ed., section 3.1. Tensor cores truncate instead of rounding, hence 2u.
  Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021.
* λ·√n·u with λ = 6 is exceeded with a probability of 2·exp(-λ²/2) = 3e-8 per element: Higham &
  Mary, "A new approach to probabilistic rounding error analysis", SISC 2019, theorem 2.4.
* (n/16)·2u is the drift of truncation on same-sign data, one truncation for each block of 16
  products: block FMA, Blanchard, Higham, Lopez, Mary, Pranesh, SISC 2020. In an emulation of
  16-blocks truncated to 24 bits on U[0, 1) the largest error / M was 5.9e-6, 2.3e-5 and 8.4e-5
  at K = 4096, 16384 and 65536, against 5.3e-5, 1.7e-4 and 5.8e-4 from this formula. An H200
  drifts more: at K = 4096 on [0.1, 1.1) the mean error / M of cuBLAS was -1.2e-5 for bf16 and
  -2.8e-5 for tf32, whose instructions add 8 products, so that n/16 is n/8 there.
* Products of two bf16, f16, tf32 or fp8 numbers are exact in float32 (at most 22 significand bits).
  So inputs add no term. Inputs of tf32 operations are already tf32 numbers. A kernel that rounds
  f32 inputs to tf32 does not compute an f32 operation unless it declares so
  (:func:`tf32_input_error`).
* Products of blocks are exact too before their factors apply; a kernel may round three times where
  they do (the product of both factors, that of a block's sum or of an element with it, the sum):
  n grows by :data:`BLOCK_FACTOR_ROUNDINGS`, because each term of the result passes through them
  once. M contains the factors.
* Partial sums of a split reduction are rounded once more where they are stored in an accumulator
  narrower than f32: S roundings of partials whose magnitudes sum to at most M.

How far a correct result may be from the reference: two tiers, element by element.

::

    |got - reference| <= E·M + half_ulp(|reference| + E·M) + absolute

with M the magnitude |A||B| (carried through the epilogue), E the error of the accumulation
(:mod:`gemmetry.numerics.bounds`, with its sources), half_ulp half the distance between
neighbours in the result format (at most u_out·|x|) and absolute the cost of underflow. Beyond the
warn tier a result is unusual; beyond the fail tier it is wrong.

Each declaration of an executable (:mod:`gemmetry.domain.record`) widens one term:

* ``NONDETERMINISTIC``: none, as the bounds hold for any order of summation;
* ``TF32``: E grows by the rounding of f32 inputs (:func:`~.accumulation.tf32_input_error`);
* ``NORMWISE``: absolute grows by the normwise bound of fast algorithms
  (:func:`~.accumulation.normwise_error`);
* ``STOCHASTIC_ROUNDING``: a whole ulp in place of half (Croci, Fasi, Higham, Mary, Mikaitis,
  "Stochastic rounding: implementation, error analysis and applications", 2022, section 2);
  in return, :mod:`gemmetry.verification.comparison` tests that the errors have no bias;
* ``FLUSHES_SUBNORMALS``: absolute grows to the smallest normal number of every format concerned,
  inputs included;
* ``ROUNDS_BEFORE_ADDING``: E grows by the unit roundoff of the result where a C is added.

The accuracy class: the arithmetic that the errors of a result are consistent with.

The errors of a whole result in a few numbers, as a device computes them for results that are
right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gemmetry.domain.operation import (
    BF16,
    F16,
    F32,
    F64,
    TF32,
    DType,
    EpilogueStep,
    Operation,
    Scaling,
)
from gemmetry.domain.record import Trait
from gemmetry.numerics.references import GELU_LIPSCHITZ, OperandSizes, Reference
from gemmetry.numerics.storage import Float64Array, smallest_normal, smallest_subnormal, to_float64

LAMBDA = 6.0
"""λ of the probabilistic bound."""

BLOCK = 16
"""Products that tensor cores add per truncation: k of the bf16 and f16 instructions."""

TF32_BLOCK = 8
"""Block of tf32 (PTX ISA, wgmma and mma shapes)."""

FP8_UNIT = 2.0**-13
"""One truncation of Hopper's fp8 accumulator, which keeps 14 bits (PyTorch blog, "Some Matrix
Multiplication Engines Are Not As Accurate As We Thought"; DeepSeek-V3 report, section 3.5.2)."""

FP8_PROMOTION_INTERVAL = 128
"""Products after which libraries move an fp8 sum to a float32 accumulator (DeepSeek-V3 report)."""

FP8_DOUBT = 3.0
"""Factor of the fail tier over the warn tier for promoted sums, which makes it 4.5 times the
measured error. Sums that are never promoted were measured too; they exceed it from K = 512 on."""

BLOCK_FACTOR_ROUNDINGS = 4
"""Roundings of a term where the factors of its block apply: of the factors' product, of the product
with it, of the sum, and one more where each element is multiplied by its own factor."""

MEANINGLESS = 0.5
"""No tier allows E above this: an error of half of M leaves nothing of a result. It binds only for
16-bit accumulators, whose γ_n has no finite value beyond n = 1/(2u)."""

GELU_ROUNDINGS = 16
"""Roundings allowed for an evaluation of gelu in the accumulator's format: CUDA's erff is within 2
ulp (CUDA Math API, table of maximum errors), polynomial ones of compilers within about 8."""

FAST_LEVELS = 2
"""Levels of recursion allowed for a fast algorithm: practical ones use one or two (Huang, Smith,
Henry, van de Geijn, "Strassen's Algorithm Reloaded", SC16)."""


class AccumulationError(NamedTuple):
    """E of the two tiers, in units of M (or of another scale where stated)."""

    warn: float
    fail: float


def accumulation_error(
    operation: Operation,
    *,
    folded_terms: int | None = None,
    declared: Collection[Trait] = (),
) -> AccumulationError:
    """E of both tiers for `operation`, as defined in the module's docstring.

    Args:
        folded_terms: neither the inputs nor any sum is rounded: only the epilogue and the final
            rounding err. Sums of so many terms are exact for the product alone. They round where a
            kernel folds factors into it (:func:`folded_error`). None: all sums are rounded.
        declared: ``TF32`` adds the rounding of the inputs, ``FP8_FAST_ACCUMULATION`` the drift of
            sums that are never promoted; the other traits change no E.
    """
    s = operation.signature
    unit = s.accumulator.unit_roundoff
    after = _epilogue_roundings(operation) * 2 * unit
    if folded_terms is not None:
        after += folded_error(folded_terms, unit)
        return AccumulationError(after, after)
    count = rounding_count(operation)
    block = TF32_BLOCK if TF32 in (s.lhs, s.rhs) or rounds_to_tf32(operation, declared) else BLOCK
    warn = probabilistic_error(count, unit, block)
    fail = gamma(count, 2 * unit)
    if s.lhs.is_fp8 or s.rhs.is_fp8:
        narrow, doubt = fp8_promoted_error(count), FP8_DOUBT
        if Trait.FP8_FAST_ACCUMULATION in declared:
            narrow, doubt = fp8_unpromoted_error(count), 1.0
        warn, fail = warn + narrow, fail + doubt * narrow
    if rounds_to_tf32(operation, declared):
        inputs = tf32_input_error(operation.matmul_shape.k)
        warn, fail = warn + inputs.warn, fail + inputs.fail
    # The float64 reference has an error too, which matters for f64 results only.
    warn += probabilistic_error(count, F64.unit_roundoff) + after
    fail += gamma(count, F64.unit_roundoff) + after
    fail = min(fail, MEANINGLESS)
    return AccumulationError(min(warn, fail, MEANINGLESS / 2), fail)


def rounding_count(operation: Operation) -> int:
    """n: roundings between the products of one element and its accumulator's final content."""
    s = operation.signature
    count = operation.matmul_shape.k + s.split_k_slices - 1
    if s.split_k_slices > 1 and s.accumulator.significand_bits < F32.significand_bits:
        count += s.split_k_slices  # Each partial sum is rounded as it is stored.
    if s.blocks is not None:
        count += BLOCK_FACTOR_ROUNDINGS
    return count


def probabilistic_error(count: int, unit: float, block: int = BLOCK) -> float:
    """The warn tier's E for `count` roundings of unit roundoff `unit`, truncated once a block."""
    return LAMBDA * math.sqrt(count) * unit + count / block * 2 * unit


def folded_error(terms: int, unit: float) -> float:
    """The error that an exact sum of `terms` terms may have in a kernel that multiplies an operand
    by alpha or a scale factor before the sum, or begins the sum with beta·C. In units of the
    largest possible partial sum; 0 for no terms.

    It consists of two roundings of the operand, to nearest or truncated.
    Those of the sum come on top, by the warn tier's formula. That formula is relative to M, the sum
    of all magnitudes; the largest partial sum of terms with random signs is smaller, which leaves
    room for one truncation per term.
    """
    if not terms:
        return 0.0
    return min(4 * unit + probabilistic_error(terms, unit), MEANINGLESS)


def gamma(count: int, unit: float) -> float:
    """γ_n = n·u / (1 - n·u); infinite where n·u >= 1 (Higham 2002, lemma 3.1)."""
    product = count * unit
    return product / (1 - product) if product < 1 else math.inf


def fp8_promoted_error(count: int) -> float:
    """The error that 14-bit sums promoted every 128 products may add to E.

    Measured on an H200 (torch 2.11, ``_scaled_mm`` without fast accumulation, 1024 × 1024 × K,
    e4m3 from U[0, 1)): the largest error / M was 1.33e-3, 1.05e-3, 7.9e-4, 6.3e-4, 5.6e-4 at
    K = 128, 256, 1024, 4096, 16384, which is (4.1 + 6.6·√(128/K))·2⁻¹³: a drift that does not
    shrink and a scatter that averages out. The allowance is 1.5 times that.
    """
    scatter = math.sqrt(FP8_PROMOTION_INTERVAL / max(count, FP8_PROMOTION_INTERVAL))
    return (6 + 10 * scatter) * FP8_UNIT


def fp8_unpromoted_error(count: int) -> float:
    """The error that 14-bit sums that are never promoted may add to E. The hardware offers this
    mode; a kernel has to declare it.

    Measured as in :func:`fp8_promoted_error` with fast accumulation, on [0.1, 1.1): 3.2e-3,
    1.7e-2, 8.0e-2, 0.27 at K = 256, 1024, 4096, 16384: up to K/7·2⁻¹³. The allowance is K/4·2⁻¹³.
    """
    return fp8_promoted_error(count) + count / 4 * FP8_UNIT


def rounds_to_tf32(operation: Operation, declared: Collection[Trait]) -> bool:
    """Whether the kernel declares that it rounds this operation's f32 inputs to tf32."""
    s = operation.signature
    return Trait.TF32 in declared and F32 in (s.lhs, s.rhs)


def tf32_input_error(k: int) -> AccumulationError:
    """The error that rounding both f32 inputs to tf32 adds to E.

    With rounding to nearest, each product errs by at most 2·2⁻¹¹ (and 2⁻²² of second order).
    Hardware that receives f32 bits ignores the low 13 (PTX ISA, ``mma`` with ``.tf32``), which
    truncates and doubles that: the fail tier. On average over K products, truncation of mantissas
    that are spread over [1, 2) costs 2·0.69·2⁻¹¹ (E[1/m] = ln 2) and deviates by 0.82·2⁻¹¹/√K; the
    warn tier is 2·2⁻¹¹ and six deviations.
    """
    unit = TF32.unit_roundoff
    fail = (1 + 2 * unit) ** 2 - 1
    return AccumulationError(min((2 + 5 / math.sqrt(k)) * unit, fail), fail)


def normwise_error(operation: Operation) -> AccumulationError:
    """Both tiers for fast algorithms (Strassen, Winograd), in units of K·max|A|·max|B|.

    Winograd's variant with L levels of recursion over an inner dimension K errs by at most
    ((4.5^L·K + 6·9^L - 6))·u in these units: Higham 2002, theorem 23.3 with n₀ = K/2^L (theorem
    23.2, Strassen's own, is smaller). The bound is by norm: small elements may be entirely wrong.
    Convolutions by Winograd's minimal filtering have the same allowance; F(2×2, 3×3) amplifies by
    at most 9 (row sums of its transforms: 3²·1.5²·2² = 81 for nine products), less than 4.5^L.
    """
    unit, count = operation.signature.accumulator.unit_roundoff, rounding_count(operation)
    growth, extra = 4.5**FAST_LEVELS, 6 * 9**FAST_LEVELS
    fail = min((growth * count + extra) * 2 * unit, MEANINGLESS)
    warn = growth * probabilistic_error(count, unit) + probabilistic_error(extra, unit)
    return AccumulationError(min(warn, fail), fail)


def _epilogue_roundings(operation: Operation) -> int:
    s = operation.signature
    roundings = (s.alpha != 1) + 2 * (s.beta != 0)
    roundings += 2 * (s.scaling is not Scaling.NONE and s.blocks is None)
    roundings += sum(step in (EpilogueStep.BIAS, EpilogueStep.RESIDUAL) for step in s.epilogue)
    return roundings + GELU_ROUNDINGS * (EpilogueStep.GELU in s.epilogue)


def scaled_exponent(values: Float64Array, factor: float) -> Float64Array:
    """factor·2**e for magnitudes in [2**e, 2**(e + 1))."""
    exponent_bits = values.view(np.uint64) & np.uint64(0x7FF0_0000_0000_0000)
    power: Float64Array = exponent_bits.view(np.float64)
    power *= factor
    return power


@dataclass(frozen=True, slots=True)
class BoundRule:
    """The bounds of one operation, for any piece of its reference. For floats only: integer results
    are either equal or wrong."""

    relative: AccumulationError
    """E, in units of M."""
    absolute: AccumulationError
    """Error that any element may have, in units of the result."""
    rounding: float
    """Half an ulp of numbers in [1, 2) of the result format; a whole ulp where rounding is
    stochastic."""
    warns_extra: bool
    """Whether the warn tier also allows an epilogue's intermediates to be rounded."""
    extra: float
    """Unit roundoff of such intermediates."""
    scaled_exponent: Callable[[Float64Array, float], Float64Array] = scaled_exponent
    """:func:`scaled_exponent` for the arrays of the pieces; all else is arithmetic that every kind
    of array has, so that a device applies the same rule to its own."""

    def warn(self, piece: Reference, size: Float64Array | None = None) -> Float64Array:
        """The warn tier for `piece`; `size` is |reference|, if the caller has already computed
        it."""
        bound = self._tier(piece, size, self.relative.warn, self.absolute.warn)
        if piece.extra_rounding is not None and self.warns_extra:
            bound += self.extra * piece.extra_rounding
        return bound

    def fail(self, piece: Reference, size: Float64Array | None = None) -> Float64Array:
        """The fail tier for `piece`; never below the warn tier."""
        bound = self._tier(piece, size, self.relative.fail, self.absolute.fail)
        if piece.extra_rounding is not None:
            # An epilogue may keep its intermediates in the result format; a fused one does not.
            bound += self.extra * piece.extra_rounding
        return bound

    def _tier(
        self, piece: Reference, size: Float64Array | None, relative: float, absolute: float
    ) -> Float64Array:
        drift: Float64Array = relative * piece.magnitude
        if size is None:
            size = np.abs(to_float64(piece.value))
        bound = self.scaled_exponent(size + drift, self.rounding)
        bound += drift
        bound += absolute
        return bound


def bound_rule(
    operation: Operation,
    reference: Reference,
    *,
    folded_terms: int | None = None,
    declared: Collection[Trait] = (),
) -> BoundRule:
    """The rule for `operation` (on floats) and all of `reference`.

    Args:
        folded_terms: see :func:`accumulation_error`.
        declared: the executable's declarations about its arithmetic.
    """
    s = operation.signature
    is_stochastic, has_exact_sums = Trait.STOCHASTIC_ROUNDING in declared, folded_terms is not None
    warn = underflow_cost(operation, flushed=False)
    fail = underflow_cost(operation, flushed=True)
    if reference.extra_rounding is not None:
        # Values that an epilogue keeps in the result format may be subnormal before each of its
        # steps.
        kept = (len(s.epilogue) + (s.beta != 0)) * GELU_LIPSCHITZ
        fail += kept * _underflow(s.result, flushed=True)
        warn += kept * _underflow(s.result, flushed=False) if has_exact_sums else 0.0
    if Trait.FLUSHES_SUBNORMALS in declared:
        warn = fail = _flush_cost(operation, reference)
    if Trait.NORMWISE in declared:
        norm = _norm(operation, reference)
        fast = normwise_error(operation)
        warn, fail = warn + fast.warn * norm, fail + fast.fail * norm
    relative = accumulation_error(operation, folded_terms=folded_terms, declared=declared)
    once = s.result.unit_roundoff
    if Trait.ROUNDS_BEFORE_ADDING in declared and s.beta != 0:
        relative = AccumulationError(relative.warn + once, relative.fail + once)
    rounding = once * (2 if is_stochastic else 1)
    return BoundRule(relative, AccumulationError(warn, fail), rounding, has_exact_sums, once)


def rounds_once(operation: Operation) -> bool:
    """True if, on exact sums, a correct kernel rounds only once, to the result format, so that
    every bit of the result is known: no sum follows the product, and alpha is zero or ± a power of
    two."""
    s = operation.signature
    has_sum = adds_operand(operation) or EpilogueStep.GELU in s.epilogue
    return not has_sum and is_power_of_two_or_zero(s.alpha)


def adds_operand(operation: Operation) -> bool:
    """Whether C, a bias or a residual is added to the product."""
    s = operation.signature
    return s.beta != 0 or not {EpilogueStep.BIAS, EpilogueStep.RESIDUAL}.isdisjoint(s.epilogue)


def is_power_of_two_or_zero(value: float) -> bool:
    """Whether multiplying by `value` is exact, except for underflow and overflow."""
    return abs(math.frexp(value)[0]) in (0.0, 0.5)


def half_ulp(values: Float64Array, dtype: DType) -> Float64Array:
    """Half the distance between neighbours of `dtype` at each of `values`: 2**(e - p) for
    magnitudes in [2**e, 2**(e + 1)); 0 below float64's normal numbers."""
    return scaled_exponent(values, dtype.unit_roundoff)


def underflow_cost(operation: Operation, *, flushed: bool) -> float:
    """The error that underflow may cause, whatever the size of the result. ``flushed`` allows for
    compilers that flush subnormal numbers of formats with 8 exponent bits (CUDA's ``-ftz``)."""
    s = operation.signature
    products = operation.matmul_shape.k * _underflow(s.accumulator, flushed=flushed)
    return products + _underflow(s.result, flushed=flushed)


def _underflow(dtype: DType, *, flushed: bool) -> float:
    if flushed and dtype in (F32, BF16):
        return smallest_normal(dtype)
    # Half of float64's smallest number is not representable; bounds are never zero, so that errors
    # can be divided by them.
    return max(smallest_subnormal(dtype) / 2, np.finfo(np.float64).smallest_subnormal)


def _flush_cost(operation: Operation, reference: Reference) -> float:
    """Flushed sums and results, and K products that each lost a subnormal factor."""
    s = operation.signature
    lhs, rhs, scale = reference.sizes or OperandSizes(0.0, 0.0, 1.0)
    lost = smallest_normal(s.lhs) * rhs + smallest_normal(s.rhs) * lhs
    products = operation.matmul_shape.k * (smallest_normal(s.accumulator) + lost) * scale
    return float(products + smallest_normal(s.result))


def _norm(operation: Operation, reference: Reference) -> float:
    """K·max|A|·max|B|, carried through scales and gelu; no element of M's product exceeds it. Where
    the operands' magnitudes are unknown, the largest M is used instead."""
    if reference.sizes is None:
        return float(np.max(reference.magnitude, initial=0.0))
    lhs, rhs, scale = reference.sizes
    return operation.matmul_shape.k * lhs * rhs * scale


EXACT = "exact"
"""Class of integer results without errors."""

NO_CLASS = "none"
"""Worse than every class: the result or its inputs are wrong."""


def class_errors(operation: Operation) -> dict[str, float]:
    """Maps each class to the largest error / M expected of its arithmetic at this K, in ascending
    order; only classes that are possible with the input formats.

    ``fp32`` and ``fp32-accumulated`` have the same bound and differ in their inputs: products of
    formats up to tf32 are exact, so only the sums of the latter round. ``tf32`` adds the rounding
    of both inputs to 11 bits, 2·2⁻¹¹. Only a result in f64 can show ``fp64``. The bounds are the
    warn tier's of :mod:`gemmetry.numerics.bounds`.
    """
    s, k = operation.signature, operation.matmul_shape.k
    narrow = max(s.lhs.significand_bits, s.rhs.significand_bits) <= TF32.significand_bits
    block = TF32_BLOCK if TF32 in (s.lhs, s.rhs) else BLOCK
    float32 = probabilistic_error(k, F32.unit_roundoff, block)
    classes = {
        "fp32-accumulated" if narrow else "fp32": float32,
        "fp16-accumulated": probabilistic_error(k, F16.unit_roundoff),
        "bf16-accumulated": probabilistic_error(k, BF16.unit_roundoff),
    }
    if s.result is F64:
        classes["fp64"] = 2 * probabilistic_error(k, F64.unit_roundoff)
    if not narrow:
        classes["tf32"] = float32 + 2 * TF32.unit_roundoff
    if s.lhs.is_fp8 or s.rhs.is_fp8:
        classes["fp8-promoted"] = float32 + fp8_promoted_error(k)
        classes["fp8-14bit"] = float32 + fp8_unpromoted_error(k)
    return dict(sorted(classes.items(), key=lambda item: item[1]))


def accuracy_class(operation: Operation, largest_error: float) -> str:
    """The best class whose bound holds.

    Args:
        largest_error: the largest error / M over all elements, less the part that rounding to the
            result format explains.
    """
    if operation.signature.lhs.is_integer:
        return EXACT if largest_error == 0 else NO_CLASS
    # Not a number is below no bound.
    classes = class_errors(operation).items()
    return next((name for name, bound in classes if largest_error <= bound), NO_CLASS)


class ErrorSums(NamedTuple):
    """Errors of a result whose elements are all within their warn bounds; the fields are those of
    :class:`gemmetry.verification.comparison.ErrorStatistics` with the same names."""

    max_ratio: float
    max_warn_ratio: float
    largest_error: float
    squared_error: float
    squared_reference: float
    bias_sum: float
