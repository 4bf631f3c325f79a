"""A Gaussian process over all shapes: what was measured of one shape says which configurations are
worth trying for the others.

The logarithm of a time is the predicted one, plus a constant of the shape, plus what is common to
a configuration on all shapes, plus what it has on similar shapes, plus noise. Each batch takes the
configurations of a shape that may be the fastest, by the lower confidence bound (Srinivas et al.,
ICML 2010); within a batch, what was taken counts as known (GP-BUCB: Desautels et al., JMLR 15,
2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gemmetry.tuning.search import Matrix, SearchSpace, SearchTrial, features

Indices = NDArray[np.intp]

_BATCHES = 5
"""Batches of a search: each costs the start of the workers, and more of them learn more."""
_SHAPE_VARIANCE = 4.0
"""Of a shape's constant: nothing is known of it."""
_NOISE_VARIANCE = 1e-4
"""A median of few samples varies by a per cent."""
_SHARE = 0.6
"""Part of the variance that is common to all shapes."""
_SHAPE_SCALE = 2.0
"""Octaves along M, N and K after which the rest is another."""
_LENGTHS = (1.0, 2.0, 4.0)
"""Distances of configurations, in standard deviations of a feature, over which times are alike; the
most likely one is taken."""
_VARIANCES = (0.01, 0.04, 0.16, 0.64)
"""Of the differences from the prediction; likewise."""
_CAUTION = 1.5
"""Standard deviations that an unknown configuration is given the benefit of."""
_MOST_KNOWN = 400
"""Measurements that the posterior of a shape uses: those of the nearest shapes. The work grows with
the cube of their number, and 40 shapes have thousands."""
_URGENT = 1e6
"""What a shape of which nothing works yet is ahead of all others."""
_MOST = 3
"""Largest share of a batch that a shape gets, in its equal share."""
_FAILED = math.log(2.0)
"""A configuration that failed counts as that much slower than the best: those like it are avoided,
and not forbidden. A larger factor hides the fast ones around it: where a tenth fails at random
(``tests/tuning/synthetic.py``, seeds 0 to 7), the share of the best after 5 % of the evaluations is
97.2 % with a factor of 8, and 98.5 % with 2."""


class ModelSearch:
    """See the module."""

    def __init__(self, spaces: Sequence[SearchSpace], limits: Sequence[int]) -> None:
        self._spaces = spaces
        self._limits = limits
        self._features = features(spaces)
        self._sizes = np.array(
            [[math.log2(max(size, 1)) for size in one.operation.matmul_shape] for one in spaces]
        ).reshape(len(spaces), -1)
        self._asked: list[list[int]] = [[] for _ in spaces]
        self._learned: dict[tuple[int, int], float | None] = {}
        self._best: dict[int, float] = {}
        """Space -> logarithm of the shortest time."""
        self._batch = 0

    def ask(self) -> Sequence[SearchTrial]:
        """The next batch: at first as many of every shape as its limit gives, then those of all
        shapes that promise the most."""
        if self._batch == _BATCHES:
            return []
        self._batch += 1
        known = self._known()
        posterior = _Posterior(known, self._features, self._sizes, self._spaces)
        total = math.ceil(sum(self._limits) * self._batch / _BATCHES)
        due = total - sum(map(len, self._asked))
        offers: list[tuple[float, int, int]] = []
        for index, space in enumerate(self._spaces):
            share = math.ceil(self._limits[index] / _BATCHES)
            if self._batch > 1:
                share = _MOST * math.ceil(due / len(self._spaces))
            offers += self._offers(index, space, posterior, share)
        if self._batch > 1:
            offers = sorted(offers)[:due]
        for _, index, one in offers:
            self._asked[index].append(one)
        return [SearchTrial(index, one) for _, index, one in offers] or self.ask()

    def learn(self, trial: SearchTrial, ns: float | None) -> None:
        """Learn a time, or a failure."""
        self._learned[trial.space, trial.candidate] = None if ns is None else math.log(ns)

    def _offers(
        self,
        index: int,
        space: SearchSpace,
        posterior: _Posterior,
        count: int,
    ) -> list[tuple[float, int, int]]:
        """Up to `count` configurations of a space with what each promises, negative: the expected
        improvement on the best (Jones et al., J. Global Optimization 13, 1998), or, where nothing
        of the shape works yet, the lower confidence bound."""
        count = min(count, len(space) - len(self._asked[index]))
        if count <= 0:
            return []
        mean, covariance = posterior.of(index)
        best = self._best.get(index)
        taken = set(self._asked[index])
        seeds = [one for one in space.seeds if one not in taken] if self._batch == 1 else []
        offers: list[tuple[float, int, int]] = []
        while len(offers) < count:
            spread = np.sqrt(np.maximum(covariance.diagonal(), 1e-12))
            if best is None:
                value = mean - _CAUTION * spread - _URGENT
            else:
                value = -_expected_improvement(best - mean, spread)
            value[list(taken)] = np.inf
            chosen = seeds.pop(0) if seeds else int(np.argmin(value))
            offers.append((float(value[chosen]), index, chosen))
            taken.add(chosen)
            column = covariance[:, chosen]
            covariance = covariance - np.outer(column, column) / (column[chosen] + _NOISE_VARIANCE)
        return offers

    def _known(self) -> list[tuple[int, int, float]]:
        """Space, configuration and logarithm of the time of everything that is known."""
        for (index, _), value in self._learned.items():
            if value is not None:
                self._best[index] = min(value, self._best.get(index, math.inf))
        return [
            (index, one, self._failed(index) if value is None else value)
            for (index, one), value in self._learned.items()
        ]

    def _failed(self, index: int) -> float:
        """What a configuration that failed counts as."""
        best = self._best.get(index)
        if best is None:
            best = float(np.median(self._spaces[index].predicted))
        return best + _FAILED


class _Posterior:
    """Means and covariances of the configurations of a shape, given what is known of it and of the
    shapes like it."""

    def __init__(
        self,
        known: Sequence[tuple[int, int, float]],
        rows: Sequence[Matrix],
        sizes: Matrix,
        spaces: Sequence[SearchSpace],
    ) -> None:
        self._rows, self._spaces = rows, spaces
        self._distances = _squares(sizes, sizes)
        self._near = np.exp(-self._distances / (2 * _SHAPE_SCALE**2))
        self._shapes = np.array([one[0] for one in known], dtype=np.intp)
        width = rows[0].shape[1] if rows else 0
        self._x = np.array([rows[s][c] for s, c, _ in known]).reshape(len(known), width)
        self._y = np.array([value - spaces[s].predicted[c] for s, c, value in known])
        # A shape's constant is unknown; near its mean, the numbers are well conditioned.
        self._center = {s: float(self._y[self._shapes == s].mean()) for s in set(self._shapes)}
        self._y -= np.array([self._center[s] for s in self._shapes])
        self._length, self._variance = _LENGTHS[1], _VARIANCES[1]
        if known:
            used = np.arange(0, len(known), -(-len(known) // _MOST_KNOWN))
            fits = [self._likelihood(a, b, used) for a in _LENGTHS for b in _VARIANCES]
            _, self._length, self._variance = max(fits)

    def of(self, index: int) -> tuple[Matrix, Matrix]:
        """Mean (configurations,) and covariance (configurations, configurations) of a shape; its
        constant is left out of the covariance, as it changes no order."""
        rows, prior = self._rows[index], self._spaces[index].predicted
        same = np.full(len(rows), index)
        own = self._kernel(rows, same, rows, same)
        # The shape itself first, then those nearest to it.
        used = np.argsort(self._distances[index][self._shapes], kind="stable")[:_MOST_KNOWN]
        if not len(used):
            return prior.copy(), own
        between = self._kernel(rows, same, self._x[used], self._shapes[used])
        sides = np.column_stack([self._y[used], between.T])
        solved = np.linalg.solve(self._covariance(used), sides)
        joint = between + _SHAPE_VARIANCE * (self._shapes[used] == index)
        mean = prior + self._center.get(index, 0.0) + joint @ solved[:, 0]
        return mean, own - between @ solved[:, 1:]

    def _kernel(self, a: Matrix, of_a: Indices, b: Matrix, of_b: Indices) -> Matrix:
        squares = _squares(a, b)
        # Matérn 5/2: times change more suddenly than a Gaussian kernel assumes.
        distance = np.sqrt(squares * (5 / max(a.shape[1], 1))) / self._length
        alike = (1 + distance + distance**2 / 3) * np.exp(-distance)
        near = self._near[np.ix_(of_a, of_b)]
        return np.asarray(self._variance * alike * (_SHARE + (1 - _SHARE) * near))

    def _covariance(self, used: Indices) -> Matrix:
        """Of measurements, shape (used, used)."""
        x, shapes = self._x[used], self._shapes[used]
        matrix = self._kernel(x, shapes, x, shapes)
        matrix += _SHAPE_VARIANCE * (shapes[:, None] == shapes[None, :])
        return np.asarray(matrix + _NOISE_VARIANCE * np.eye(len(x)))

    def _likelihood(
        self, length: float, variance: float, used: Indices
    ) -> tuple[float, float, float]:
        self._length, self._variance = length, variance
        factor = np.linalg.cholesky(self._covariance(used))
        half = np.linalg.solve(factor, self._y[used])
        value = -0.5 * float(half @ half) - float(np.log(factor.diagonal()).sum())
        return value, length, variance


def _expected_improvement(gain: Matrix, spread: Matrix) -> Matrix:
    """Of a normal variable with mean `gain` and standard deviation `spread`: the mean of its
    positive part."""
    z = gain / spread
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])
    return np.asarray(gain * below + spread * density)


def _squares(a: Matrix, b: Matrix) -> Matrix:
    """Squared Euclidean distances of the rows of `a` and `b`, shape (len(a), len(b))."""
    found = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * a @ b.T
    return np.asarray(np.maximum(found, 0.0))


def create(spaces: Sequence[SearchSpace], limits: Sequence[int], _rng: Generator) -> ModelSearch:
    """See :func:`gemmetry.tuning.search.make_strategy`."""
    return ModelSearch(spaces, limits)
