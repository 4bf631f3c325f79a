"""How far a correct result may be from the reference: two tiers, element by element.

::

    |got - reference| <= E·M + half_ulp(|reference| + E·M) + absolute

with M the magnitude |A||B| (carried through the epilogue), E the error of the accumulation
(:mod:`gemmetry.numerics.accumulation`, with its sources), half_ulp half the distance between
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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from gemmetry.domain.dtypes import BF16, F32, DType
from gemmetry.domain.operation import EpilogueStep, Operation
from gemmetry.domain.record import Trait
from gemmetry.numerics.accumulation import AccumulationError, accumulation_error, normwise_error
from gemmetry.numerics.gelu import GELU_LIPSCHITZ
from gemmetry.numerics.references import OperandSizes, Reference
from gemmetry.numerics.storage import (
    Float64Array,
    smallest_normal,
    smallest_subnormal,
    to_float64,
)


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
    exact_sums: bool = False,
    folded_terms: int = 0,
    declared: Collection[Trait] = (),
) -> BoundRule:
    """The rule for `operation` (on floats) and all of `reference`.

    Args:
        exact_sums: the inputs are chosen so that neither they nor any sum is rounded; only the
            epilogue and the final rounding may err.
        folded_terms: see :func:`~.accumulation.accumulation_error`.
        declared: the executable's declarations about its arithmetic.
    """
    s = operation.signature
    is_stochastic = Trait.STOCHASTIC_ROUNDING in declared
    warn = underflow_cost(operation, flushed=False)
    fail = underflow_cost(operation, flushed=True)
    if reference.extra_rounding is not None:
        # Values that an epilogue keeps in the result format may be subnormal before each of its
        # steps.
        kept = (len(s.epilogue) + (s.beta != 0)) * GELU_LIPSCHITZ
        fail += kept * _underflow(s.result, flushed=True)
        warn += kept * _underflow(s.result, flushed=False) if exact_sums else 0.0
    if Trait.FLUSHES_SUBNORMALS in declared:
        warn = fail = _flush_cost(operation, reference)
    if Trait.NORMWISE in declared:
        norm = _norm(operation, reference)
        fast = normwise_error(operation)
        warn, fail = warn + fast.warn * norm, fail + fast.fail * norm
    relative = accumulation_error(
        operation, exact_sums=exact_sums, folded_terms=folded_terms, declared=declared
    )
    if Trait.ROUNDS_BEFORE_ADDING in declared and s.beta != 0:
        once = s.result.unit_roundoff
        relative = AccumulationError(relative.warn + once, relative.fail + once)
    return BoundRule(
        relative=relative,
        absolute=AccumulationError(warn, fail),
        rounding=s.result.unit_roundoff * (2 if is_stochastic else 1),
        warns_extra=exact_sums,
        extra=s.result.unit_roundoff,
    )


def rounds_once(operation: Operation) -> bool:
    """True if, on exact sums, a correct kernel rounds only once, to the result format, so that
    every bit of the result is known: no sum follows the product, and alpha is zero or ± a power of
    two."""
    s = operation.signature
    sums = {EpilogueStep.BIAS, EpilogueStep.RESIDUAL, EpilogueStep.GELU}.intersection(s.epilogue)
    return s.beta == 0 and not sums and is_power_of_two_or_zero(s.alpha)


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
    k = operation.matmul_shape.k
    sizes = reference.sizes or OperandSizes(0.0, 0.0, 1.0)
    lost = smallest_normal(s.lhs) * sizes.rhs + smallest_normal(s.rhs) * sizes.lhs
    products = k * (smallest_normal(s.accumulator) + lost) * sizes.scale
    return float(products + smallest_normal(s.result))


def _norm(operation: Operation, reference: Reference) -> float:
    """K·max|A|·max|B|, carried through scales and gelu; no element of M's product exceeds it. Where
    the operands' magnitudes are unknown, the largest M is used instead."""
    if reference.sizes is None:
        return float(np.max(reference.magnitude, initial=0.0))
    lhs, rhs, scale = reference.sizes
    return operation.matmul_shape.k * lhs * rhs * scale
