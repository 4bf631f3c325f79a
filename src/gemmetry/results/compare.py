"""The one engine of comparisons: pairs of results are judged together, and what is printed with a
verdict is the interval that decided it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gemmetry.statistics.comparison import Comparison, Difference


class Pair(Protocol):
    """Two results and how to compare them."""

    def is_testable(self, confidence: float) -> bool:
        """Whether the comparison could show a difference on its own."""

    def compare(self, confidence: float, family: int, divisor: float | None = None) -> Comparison:
        """The comparison as one of `family` that are judged together (:class:`Comparison`)."""


MOST_TOGETHER = 100
"""Comparisons up to which all intervals hold together. With more, intervals that all hold become so
wide that they decide nothing, and the rate of false verdicts is bounded instead."""


def compare(pairs: Sequence[Pair], confidence: float = 0.95) -> list[Comparison]:
    """The comparisons, each with an interval and the verdict that is read from it. Comparisons that
    could not show a difference even alone do not count.

    The intervals of up to :data:`MOST_TOGETHER` hold jointly with `confidence`. Of more, the
    expected share of false ones among those that claim a difference is at most 1 - `confidence`,
    and so is the share among those that claim none (:func:`_judge_by_rate`).
    """
    family = max(1, sum(one.is_testable(confidence) for one in pairs))
    if family <= MOST_TOGETHER:
        return [one.compare(confidence, family) for one in pairs]
    return _judge_by_rate(pairs, confidence, family)


def _judge_by_rate(pairs: Sequence[Pair], confidence: float, family: int) -> list[Comparison]:
    """Verdicts with a bounded rate of false ones (Benjamini & Hochberg, JRSS B 57, 1995), read from
    the intervals that belong to it: with an error of R / m of the family's for R of m that are
    selected, so that their false coverage has the same bound (Benjamini & Yekutieli, JASA 100,
    2005). R is the largest number of comparisons that intervals of that level decide.

    Differences and their absence are selected separately: thousands of the one must not make the
    other cheap. What is in neither selection has the interval of a difference, which does not
    decide it.
    """
    alone = [one.compare(confidence, family, 1.0) for one in pairs]

    def selected(*verdicts: Difference) -> tuple[float, dict[int, Comparison]]:
        """The divisor of the probability of error, and the comparisons that it decides so."""
        chosen = {n: one for n, one in enumerate(alone) if one.verdict in verdicts}
        divisor = 1.0
        while chosen and len(chosen) < family / divisor * (1 - 1e-9):
            divisor = family / len(chosen)
            narrowed = {n: pairs[n].compare(confidence, family, divisor) for n in chosen}
            chosen = {n: one for n, one in narrowed.items() if one.verdict in verdicts}
        return (divisor if chosen else float(family)), chosen

    divisor, different = selected(Difference.SLOWER, Difference.FASTER)
    _, same = selected(Difference.NONE_SHOWN)
    return [
        different.get(n) or same.get(n) or one.compare(confidence, family, divisor)
        for n, one in enumerate(pairs)
    ]
