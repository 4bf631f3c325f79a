"""Predicts how a candidate's time compares with that of cuBLAS on a shape that was not measured.

The model of :mod:`gemmetry.providers.launch_model` ranks tiles. Its absolute times are unusable, so
the table calibrates it: what the model misses at shapes that were measured, weighted by how near
they are, is added to its prediction. A candidate that was measured at few of them borrows from the
others of its provider.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gemmetry.dispatcher.problems import CUBLAS, MatmulProblem, operation_of, parts_of
from gemmetry.dispatcher.table import DispatchTable, TunedShape
from gemmetry.domain.dispatch import Configuration
from gemmetry.hardware.devices import device_or_like
from gemmetry.providers.launch_model import modelled_ns

_OCTAVES = (1.0, 2.0, 2.0)
"""Distances along M, N and K at which a measured shape counts for 0.6 of one at the shape itself.
How a kernel does depends on the number of rows first of all."""
_FEWEST = 3
"""Measured shapes that a prediction needs."""
_LEAST_WEIGHT = 0.1
"""Shapes with a lower weight are no evidence."""
_PRIOR = 0.5
"""Weight of what all candidates of a provider have in common, in measured shapes."""
_STANDARD_ERRORS = 1.0
"""By how many standard errors a candidate must be predicted to be faster: what is hardly known
loses to what is known, and to cuBLAS."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The logarithm of a candidate's time over that of cuBLAS."""

    value: float
    standard_error: float

    @property
    def cautious(self) -> float:
        """What it may be at worst; candidates are ranked by it."""
        return self.value + _STANDARD_ERRORS * self.standard_error

    @property
    def is_faster(self) -> bool:
        """Whether the evidence is enough to prefer the candidate to cuBLAS."""
        return self.cautious < 0


class Predictor:
    """Predictions from the entries of a table."""

    def __init__(self, table: DispatchTable) -> None:
        self._table = table
        self._device = device_or_like(table.device, table.target.partition("-")[2])
        self._missed: dict[MatmulProblem, dict[str, float]] = {}
        self._entries: dict[str, list[TunedShape]] = {}
        for entry in table.entries:
            self._entries.setdefault(entry.signature, []).append(entry)
        self._candidates = {
            signature: sorted({name for one in entries for name in one.times_ns} - {CUBLAS})
            for signature, entries in self._entries.items()
        }

    def entries(self, signature: str) -> Sequence[TunedShape]:
        """The measured shapes of a signature."""
        return self._entries.get(signature, ())

    def predictions(self, problem: MatmulProblem) -> dict[str, Prediction]:
        """How the candidates compare with cuBLAS; without those about which too little was
        measured nearby."""
        near = [
            (weight, self._missed_at(entry))
            for entry in self.entries(problem.signature)
            if (weight := _weight(problem, entry.problem)) >= _LEAST_WEIGHT
            and CUBLAS in entry.times_ns
        ]
        own: dict[str, list[tuple[float, float]]] = {}
        alike: dict[str, list[tuple[float, float]]] = {}
        shapes: Counter[str] = Counter()
        for weight, missed in near:
            shapes.update({parts_of(name)[0] for name in missed})
            for name, value in missed.items():
                own.setdefault(name, []).append((weight, value))
                alike.setdefault(parts_of(name)[0], []).append((weight, value))
        common = {provider: _mean(values) for provider, values in alike.items()}
        spreads = {name: _variance(values, common[name]) for name, values in alike.items()}
        library = self._ns(problem, Configuration())
        found = {}
        for name in self._candidates.get(problem.signature, ()):
            provider = parts_of(name)[0]
            if shapes[provider] < _FEWEST:
                continue
            mine = own.get(name, [])
            usual = _mean([*mine, (_PRIOR, common[provider])])
            spread = _variance(mine, usual) if len(mine) >= _FEWEST else spreads[provider]
            error = math.sqrt(spread / (_independent(mine) + _PRIOR))
            ratio = self._ns(problem, self._table.configuration(name)) / library
            found[name] = Prediction(math.log(ratio) + usual, error)
        return found

    def transferred(self, problem: MatmulProblem, entry: TunedShape, candidate: str) -> float:
        """The logarithm of a candidate's time over that of cuBLAS, as measured at `entry` and
        corrected by what the model expects to change."""
        return self._missed_at(entry)[candidate] + self.modelled(problem, candidate)

    def modelled(self, problem: MatmulProblem, candidate: str) -> float:
        """The model's own logarithm of the ratio."""
        ours = self._table.configuration(candidate)
        return math.log(self._ns(problem, ours) / self._ns(problem, Configuration()))

    def _missed_at(self, entry: TunedShape) -> dict[str, float]:
        """Candidate -> what the model misses at a shape where cuBLAS was measured, too."""
        problem, times = entry.problem, entry.times_ns
        if problem not in self._missed:
            self._missed[problem] = {
                name: math.log(ns / times[CUBLAS]) - self.modelled(problem, name)
                for name, ns in times.items()
                if name != CUBLAS
            }
        return self._missed[problem]

    def _ns(self, problem: MatmulProblem, configuration: Configuration) -> float:
        if self._device is None:
            return 1.0
        return modelled_ns(operation_of(problem), configuration, self._device)


_Weighted = Sequence[tuple[float, float]]
"""Weights and values."""


def _weight(problem: MatmulProblem, measured: MatmulProblem) -> float:
    pairs = zip(problem.shape, measured.shape, _OCTAVES, strict=True)
    return math.exp(-sum((math.log2(a / b) / scale) ** 2 for a, b, scale in pairs) / 2)


def _mean(values: _Weighted) -> float:
    return sum(weight * value for weight, value in values) / sum(weight for weight, _ in values)


def _variance(values: _Weighted, mean: float) -> float:
    return _mean([(weight, (value - mean) ** 2) for weight, value in values])


def _independent(values: _Weighted) -> float:
    """Number of equally weighted values that are worth as much (Kish's effective size)."""
    squares = sum(weight**2 for weight, _ in values)
    return sum(weight for weight, _ in values) ** 2 / squares if squares else 0.0
