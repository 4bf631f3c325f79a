"""Quantiles of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Samples: TypeAlias = Sequence[float] | npt.NDArray[np.float64]


def quantile(samples: Samples, share: float) -> float:
    """The value below which `share` (0 to 1) of the samples lie, linear between neighbours.

    Definition 7 of Hyndman & Fan, "Sample Quantiles in Statistical Packages", The American
    Statistician 50 (1996): the h-th smallest with h = (n - 1)·share + 1.

    Raises:
        ValueError: no samples, or a share outside [0, 1].
    """
    if len(samples) == 0:
        raise ValueError("no samples have no quantile")
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies between 0 and 1, not at {share}")
    return float(np.quantile(np.asarray(samples, dtype=np.float64), share))


def median(samples: Samples | npt.NDArray[np.int64]) -> float:
    """The middle sample, or the mean of the two middle ones.

    Raises:
        ValueError: no samples.
    """
    if len(samples) == 0:
        raise ValueError("no samples have no median")
    # numpy's own median takes tens of µs, and comparisons of rounds need thousands of medians.
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    middle = len(ordered) // 2
    return float(
        ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    )
