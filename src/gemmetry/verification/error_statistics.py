"""Statistics of comparing a result with its reference, computed in parts that can be merged."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gemmetry.numerics.accumulation import LAMBDA

Mask = npt.NDArray[np.bool_]


@dataclass
class ErrorStatistics:
    """How far a result is from its reference. ``bad`` marks elements outside the fail bound."""

    elements: int
    bad: Mask | None = None
    """Two-dimensional, (-1, last axis); None when every element is within its bound."""
    bad_count: int = 0
    warned_count: int = 0
    """Number of elements outside the warn bound."""
    nan_count: int = 0
    infinite_count: int = 0
    max_ratio: float = 0.0
    """Largest error / fail bound over the finite elements."""
    max_warn_ratio: float = 0.0
    largest_error: float = 0.0
    """Largest error / magnitude, less the part explained by rounding to the result format."""
    squared_error: float = 0.0
    squared_reference: float = 0.0
    bias_sum: float = 0.0
    first_bad: str = ""
    """Index, value and expectation of the first element outside its bound."""
    rounding: RoundingBias | None = None
    """Set only where stochastic rounding is declared."""

    @property
    def has_finite_errors(self) -> bool:
        """False where the result has no finite element, so that error magnitudes are
        meaningless."""
        return self.nan_count + self.infinite_count < self.elements

    @property
    def relative_frobenius(self) -> float | None:
        """‖got - reference‖ / ‖reference‖ over the finite elements."""
        if self.squared_reference > 0:
            return math.sqrt(self.squared_error / self.squared_reference)
        return 0.0 if self.squared_error == 0 else None

    @property
    def signed_bias(self) -> float:
        """Mean error over the warn bound, counted away from zero: negative where magnitudes are
        too small, as truncation makes them."""
        return self.bias_sum / self.elements if self.elements else 0.0

    @property
    def bias_problem(self) -> str:
        """Why the errors are inconsistent with the declared stochastic rounding; "" if they are
        consistent, or if none was declared."""
        return self.rounding.problem if self.rounding is not None else ""

    def add(self, part: ErrorStatistics) -> None:
        """Merge the statistics of a later part of the same result; its ``elements`` are already
        counted here, and its mask is not merged."""
        self.bad_count += part.bad_count
        self.warned_count += part.warned_count
        self.nan_count += part.nan_count
        self.infinite_count += part.infinite_count
        self.max_ratio = max(self.max_ratio, part.max_ratio)
        self.max_warn_ratio = max(self.max_warn_ratio, part.max_warn_ratio)
        self.largest_error = max(self.largest_error, part.largest_error)
        self.squared_error += part.squared_error
        self.squared_reference += part.squared_reference
        self.bias_sum += part.bias_sum
        self.first_bad = self.first_bad or part.first_bad
        if part.rounding is not None:
            self.rounding = self.rounding or RoundingBias()
            self.rounding.add(part.rounding)


@dataclass
class RoundingBias:
    """Sums for the test that stochastic rounding has no bias, in ulps of the result.

    Rounding up with the probability of the fraction above gives errors of mean 0 and a variance of
    at most 1/4 ulp² each, independent of each other; so their sum over n elements exceeds λ·√n/2
    with a probability of 2·exp(-λ²/2), 3e-8 for λ = 6 (Hoeffding's inequality). The accumulation's
    own error is allowed in addition: its drift, relative to the result, and its scatter.
    """

    count: int = 0
    upward: float = field(default=0.0)
    """Sum of the errors."""
    outward: float = field(default=0.0)
    """Sum of the errors, counted away from zero."""
    drift: float = field(default=0.0)
    squared_scatter: float = field(default=0.0)

    def add(self, other: RoundingBias) -> None:
        self.count += other.count
        self.upward += other.upward
        self.outward += other.outward
        self.drift += other.drift
        self.squared_scatter += other.squared_scatter

    @property
    def problem(self) -> str:
        """Description of the bias, or ""."""
        granted = self.drift + math.sqrt(self.squared_scatter) + LAMBDA * math.sqrt(self.count) / 2
        for total, way in ((self.outward, "away from zero"), (self.upward, "upward")):
            if abs(total) > granted:
                mean = total / self.count
                return (
                    f"stochastic rounding is declared, but errors average {mean:+.2g} ulp {way}; "
                    f"without bias it is within ±{granted / self.count:.2g}"
                )
        return ""
