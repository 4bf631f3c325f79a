"""The errors of a whole result in a few numbers, as a device computes them for results that are
right."""

from __future__ import annotations

from typing import NamedTuple


class ErrorSums(NamedTuple):
    """Errors of a result whose elements are all within their warn bounds; the fields are those of
    :class:`gemmetry.verification.error_statistics.ErrorStatistics` with the same names."""

    max_ratio: float
    max_warn_ratio: float
    largest_error: float
    squared_error: float
    squared_reference: float
    bias_sum: float
