"""Predicts how a candidate's time compares with that of cuBLAS on a shape that was not measured:
as at the measured shapes, weighted by how near they are. A candidate that was measured at few of
them borrows from the others of its provider.

Correcting the ratios by the waves, L2 cache, memory and launch of
:mod:`gemmetry.providers.launch_model` was tried and chose worse: docs/dispatcher.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gemmetry.dispatcher.problems import CUBLAS, MatmulProblem, parts_of
from gemmetry.dispatcher.table import DispatchTable, TunedShape

_OCTAVES = (1.0, 2.0, 2.0)
"""Distances along M, N and K at which a measured shape counts for 0.6 of one at the shape itself.
How a kernel does depends on the number of rows first of all. These and the prior below
are those with the least regret where each family of shapes of an H200's table was left out in turn
(docs/dispatcher.md)."""
_FEWEST = 3
"""Measured shapes that a prediction needs, of the candidate itself: it was measured where it was
worth it, so that few shapes speak for it alone."""
_LEAST_WEIGHT = 0.1
"""Shapes with a lower weight are no evidence."""
_PRIOR = 0.25
"""Weight of what all candidates of a provider have in common, in measured shapes."""


class Predictor:
    """Predictions from the entries of a table."""

    def __init__(self, table: DispatchTable) -> None:
        self._entries: dict[str, list[TunedShape]] = {}
        for entry in table.entries:
            self._entries.setdefault(entry.signature, []).append(entry)

    def entries(self, signature: str) -> Sequence[TunedShape]:
        """The measured shapes of a signature."""
        return self._entries.get(signature, ())

    def predictions(self, problem: MatmulProblem) -> dict[str, float]:
        """Candidate -> logarithm of its time over that of cuBLAS; without candidates that were
        measured too seldom nearby."""
        own: dict[str, list[tuple[float, float]]] = {}
        alike: dict[str, list[tuple[float, float]]] = {}
        for entry in self.entries(problem.signature):
            weight = _weight(problem, entry.problem)
            library = entry.times_ns.get(CUBLAS)
            if library is None or weight < _LEAST_WEIGHT:
                continue
            for name, ns in entry.times_ns.items():
                if name != CUBLAS:
                    value = weight, math.log(ns / library)
                    own.setdefault(name, []).append(value)
                    alike.setdefault(parts_of(name)[0], []).append(value)
        return {
            name: _mean([*values, (_PRIOR, _mean(alike[parts_of(name)[0]]))])
            for name, values in own.items()
            if len(values) >= _FEWEST
        }


_Weighted = Sequence[tuple[float, float]]
"""Weights and values."""


def _weight(problem: MatmulProblem, measured: MatmulProblem) -> float:
    pairs = zip(problem.shape, measured.shape, _OCTAVES, strict=True)
    return math.exp(-sum((math.log2(a / b) / scale) ** 2 for a, b, scale in pairs) / 2)


def _mean(values: _Weighted) -> float:
    return sum(weight * value for weight, value in values) / sum(weight for weight, _ in values)
