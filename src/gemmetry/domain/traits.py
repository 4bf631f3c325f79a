"""Properties that an executable declares of its arithmetic, which verification takes into account.

A declaration relaxes one rule and is recorded; without it the strict rule applies.
"""

from __future__ import annotations

from enum import StrEnum


class Trait(StrEnum):
    """Declarations, as stored in ``BuildFacts.declared``."""

    NONDETERMINISTIC = "nondeterministic"
    """Launches may differ in their last bits (sums by atomics): the bound judges each of them."""
    NORMWISE = "normwise"
    """Winograd, Strassen: errors are bounded by norms of A and B, not element by element."""
    FLUSHES_SUBNORMALS = "flushes_subnormals"
    """Subnormal inputs and results count as zero, even in formats where that is unusual."""
    STOCHASTIC_ROUNDING = "stochastic_rounding"
    """The result is rounded up or down at random: one ulp instead of half, and no bias."""
    TF32 = "tf32"
    """f32 inputs are rounded to tf32, as the caller's settings allow."""
    FP8_FAST_ACCUMULATION = "fp8_fast_accumulation"
    """fp8 sums stay in the tensor cores' 14 bits and are never promoted to f32."""
    REUSES_RESULTS = "reuses_results"
    """The memory of a returned result is reused for later results: callers that keep a result copy
    it."""
    ROUNDS_BEFORE_ADDING = "rounds_before_adding"
    """alpha·A·B is rounded to the result's format before beta·C is added, as by a second kernel."""
