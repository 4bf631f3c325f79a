"""Exact bounds of a probability from a count of successes: Clopper & Pearson's."""

from __future__ import annotations

import math

_HALVINGS = 60
"""Steps of the bisection: after them the bound is known to 2⁻⁶⁰, below a float's resolution of
anything that is printed."""


def upper_bound(successes: int, trials: int, confidence: float = 0.95) -> float:
    """One-sided upper confidence bound of the probability of success.

    The largest p for which `successes` or fewer still have the chance 1 - `confidence`; it covers
    the true probability with at least `confidence`, whatever it is (Clopper & Pearson, "The use of
    confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26, 1934).
    0 of n give 1 - (1 - confidence)**(1/n), which for 95 % is about 3/n.

    Raises:
        ValueError: no trials, more successes than trials, or a confidence outside (0, 1).
    """
    _check(successes, trials, confidence)
    if successes == trials:
        return 1.0
    low, high = successes / trials, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _at_most(successes, trials, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def lower_bound(successes: int, trials: int, confidence: float = 0.95) -> float:
    """One-sided lower confidence bound of the probability of success; see :func:`upper_bound`.

    Raises:
        ValueError: as there.
    """
    _check(successes, trials, confidence)
    return 1.0 - upper_bound(trials - successes, trials, confidence)


def interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Both bounds, each one-sided with half of the risk.

    Raises:
        ValueError: as :func:`upper_bound`.
    """
    one_sided = (1 + confidence) / 2
    return lower_bound(successes, trials, one_sided), upper_bound(successes, trials, one_sided)


def _at_most(successes: int, trials: int, probability: float) -> float:
    """P(binomial(trials, probability) <= successes), for 0 < probability < 1."""
    log_yes, log_no = math.log(probability), math.log1p(-probability)
    terms = (
        math.exp(
            math.lgamma(trials + 1)
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + k * log_yes
            + (trials - k) * log_no
        )
        for k in range(successes + 1)
    )
    return min(1.0, math.fsum(terms))


def _check(successes: int, trials: int, confidence: float) -> None:
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"{successes} of {trials} is no share of successes")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")
