"""The strategies of a search; :data:`STRATEGIES` names them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.tuning.search import (
    EFFORTS,
    EXHAUSTIVE,
    Limit,
    Matrix,
    SearchSpace,
    SearchTrial,
    TuningStrategy,
    features,
)


class FixedStrategy:
    """Measures the given configurations of each space, in one batch."""

    def __init__(self, chosen: Iterable[Sequence[int]]) -> None:
        self._trials = [SearchTrial(s, c) for s, picks in enumerate(chosen) for c in picks]

    def ask(self) -> Sequence[SearchTrial]:
        """Everything at once, then nothing."""
        trials, self._trials = self._trials, []
        return trials

    def learn(self, trial: SearchTrial, ns: float | None) -> None:
        """Nothing depends on times."""


class Halving:
    """Successive halving (Jamieson and Talwalkar, AISTATS 2016): many configurations with few
    samples, then the best third of them with three times as many, until all samples are taken of
    the last. Each rung of a space costs an equal part of its limit; the first one takes the
    configurations with the shortest predicted times."""

    def __init__(self, spaces: Sequence[SearchSpace], limits: Sequence[int]) -> None:
        self._rungs = [_places(limit) for limit in limits]
        self._left = [space.order for space in spaces]
        self._learned: list[list[tuple[float, int]]] = [[] for _ in spaces]
        self._effort = 0

    def ask(self) -> Sequence[SearchTrial]:
        """The next rung of all spaces."""
        while self._effort < len(EFFORTS):
            effort = self._effort
            self._effort += 1
            trials = []
            for index, places in enumerate(self._rungs):
                if self._learned[index]:
                    self._left[index] = [one for _, one in sorted(self._learned[index])]
                    self._learned[index] = []
                trials += [
                    SearchTrial(index, one, effort) for one in self._left[index][: places[effort]]
                ]
            if trials:
                return trials
        return []

    def learn(self, trial: SearchTrial, ns: float | None) -> None:
        """Note who may survive."""
        if ns is not None:
            self._learned[trial.space].append((ns, trial.candidate))


def _places(limit: int) -> list[int]:
    """Number of configurations of each rung. At least one is measured with all samples, and the
    other rungs share what is left."""
    last = max(1, limit // len(EFFORTS)) if limit else 0
    share = (limit - last) / (len(EFFORTS) - 1)
    return [*(int(share / effort + 1e-9) for effort in EFFORTS[:-1]), last]


Indices = NDArray[np.intp]

_BATCHES = 5
"""Batches of a search: each costs the start of the workers, and more of them learn more."""
_SHAPE_VARIANCE = 4.0
"""Prior variance of a shape's constant, of which nothing is known."""
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
"""Variances of the differences from the prediction, for each of which a model is fitted."""
_CAUTION = 1.5
"""Standard deviations that an unknown configuration is given the benefit of."""
_MOST_KNOWN = 400
"""Measurements that the posterior of a shape uses: those of the nearest shapes. The work grows with
the cube of their number, and 40 shapes have thousands."""
_URGENT = 1e6
"""Priority of a shape of which nothing works yet."""
_MOST = 3
"""Largest share of a batch that a shape gets, in its equal share."""
_FAILED = math.log(2.0)
"""A configuration that failed counts as that much slower than the best: those like it are avoided,
and not forbidden. A larger factor hides the fast ones around it: where a tenth fails at random
(``tests/tuning/synthetic.py``, seeds 0 to 7), the share of the best after 5 % of the evaluations is
97.2 % with a factor of 8, and 98.5 % with 2."""


class ModelSearch:
    """A Gaussian process over all shapes: what was measured of one shape says which configurations
    are worth trying for the others.

    The logarithm of a time is the predicted one, plus a constant of the shape, plus what is common
    to a configuration on all shapes, plus what it has on similar shapes, plus noise. Each batch
    takes the configurations of a shape that may be the fastest, by the lower confidence bound
    (Srinivas et al., ICML 2010); within a batch, what was taken counts as known (GP-BUCB: Desautels
    et al., JMLR 15, 2014)."""

    def __init__(self, spaces: Sequence[SearchSpace], limits: Sequence[int]) -> None:
        self._spaces, self._limits = spaces, limits
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
        posterior = _Posterior(self._known(), self._features, self._sizes, self._spaces)
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
        self, index: int, space: SearchSpace, posterior: _Posterior, count: int
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
        """Cost assigned to a configuration that failed."""
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
        # Matérn 5/2: times change more suddenly than a Gaussian kernel assumes.
        distance = np.sqrt(_squares(a, b) * (5 / max(a.shape[1], 1))) / self._length
        alike = (1 + distance + distance**2 / 3) * np.exp(-distance)
        near = self._near[np.ix_(of_a, of_b)]
        return np.asarray(self._variance * alike * (_SHARE + (1 - _SHARE) * near))

    def _covariance(self, used: Indices) -> Matrix:
        """Covariance of measurements, shape (used, used)."""
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
    """Mean of the positive part of a normal variable with mean `gain` and standard deviation
    `spread`."""
    z = gain / spread
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])
    return np.asarray(gain * below + spread * density)


def _squares(a: Matrix, b: Matrix) -> Matrix:
    """Squared Euclidean distances of the rows of `a` and `b`, shape (len(a), len(b))."""
    found = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * a @ b.T
    return np.asarray(np.maximum(found, 0.0))


_MOST_TRIES = 50
"""Proposals for one trial that may be no member of the space, or known, before one is drawn."""
_NONE = "none"
"""The value of a parameter that a configuration does not have."""
_SAMPLERS = {"tpe": "TPE", "random": "Random", "gp": "GP", "cmaes": "CmaEs", "qmc": "QMC"}
_NEEDS = {"gp": ("scipy", "torch"), "cmaes": ("cmaes",), "qmc": ("scipy",)}
"""Libraries that Optuna imports at a sampler's first proposal, and does not install."""


class OptunaSearch:
    """Proposals that are no member of the space are reported to the study as failed, and another
    one is drawn."""

    def __init__(
        self, spaces: Sequence[SearchSpace], limits: Sequence[int], rng: Generator, sampler: str
    ) -> None:
        optuna = _library()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._limits = limits
        self._studies = [_Study(optuna, space, sampler, rng) for space in spaces]
        self._batch = 0

    def ask(self) -> Sequence[SearchTrial]:
        """The next batch of every shape."""
        while self._batch < _BATCHES:
            self._batch += 1
            trials = []
            for index, (study, limit) in enumerate(zip(self._studies, self._limits, strict=True)):
                due = -(-limit * self._batch // _BATCHES) - len(study.proposed)
                trials += [SearchTrial(index, study.propose()) for _ in range(due)]
            if trials:
                return trials
        return []

    def learn(self, trial: SearchTrial, ns: float | None) -> None:
        """Report a time, or a failure, to the shape's study."""
        self._studies[trial.space].learn(trial.candidate, ns)


class _Study:
    def __init__(self, optuna: Any, space: SearchSpace, sampler: str, rng: Generator) -> None:
        self._optuna, self._space, self._rng = optuna, space, rng
        self._study = optuna.create_study(sampler=_sampler(optuna, sampler, rng))
        rows = [dict(one.parameters) for one in space.configurations]
        names = list(dict.fromkeys(name for row in rows for name in row))
        points = [tuple(row.get(name, _NONE) for name in names) for row in rows]
        if len(set(points)) < len(points):  # Configurations that only their names distinguish.
            names, points = ["configuration"], [(one.name,) for one in space.configurations]
        self._members = {point: index for index, point in enumerate(points)}
        self._points, self._names = points, names
        self._choices = [
            sorted(set(values), key=lambda value: (isinstance(value, str), value))
            for values in zip(*points, strict=True)
        ]
        self.proposed: dict[int, Any] = {}
        for one in space.order[: max(len(space.seeds), 1)]:
            self._study.enqueue_trial(dict(zip(names, points[one], strict=True)))

    def propose(self) -> int:
        """A configuration that was not proposed before; there is one."""
        for _ in range(_MOST_TRIES):
            trial = self._study.ask()
            point = tuple(map(trial.suggest_categorical, self._names, self._choices))
            found = self._members.get(point)
            if found is not None and found not in self.proposed:
                self.proposed[found] = trial
                return found
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        left = [one for one in self._space.order if one not in self.proposed]
        found = int(self._rng.choice(left))
        self.proposed[found] = None
        return found

    def learn(self, candidate: int, ns: float | None) -> None:
        trial = self.proposed.get(candidate)
        if trial is not None and ns is None:
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        elif trial is not None:
            self._study.tell(trial, ns)
        elif ns is not None:
            among = map(self._optuna.distributions.CategoricalDistribution, self._choices)
            known = self._optuna.trial.create_trial(
                params=dict(zip(self._names, self._points[candidate], strict=True)),
                distributions=dict(zip(self._names, among, strict=True)),
                value=ns,
            )
            self._study.add_trial(known)


def _sampler(optuna: Any, name: str, rng: Generator) -> Any:
    seed = int(rng.integers(2**31))
    if name not in _SAMPLERS:
        raise UnknownNameError("sampler of Optuna", name, _SAMPLERS)
    missing = [one for one in _NEEDS.get(name, ()) if find_spec(one) is None]
    if missing:
        raise RequestError(
            f"Optuna's sampler {name} needs {' and '.join(missing)}, which is not installed",
            hint=f"Install it with: pip install {' '.join(missing)}; or take another sampler.",
        )
    more = {"multivariate": True, "n_startup_trials": 5} if name == "tpe" else {}
    return getattr(optuna.samplers, f"{_SAMPLERS[name]}Sampler")(seed=seed, **more)


def _library() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise RequestError(
            "the strategy optuna needs optuna, which is not installed",
            hint="Install it with: pip install 'gemmetry[tune]'",
        ) from error
    return optuna


_Create = Callable[[Sequence[SearchSpace], Sequence[int], Generator, str], TuningStrategy]

STRATEGIES: Mapping[str, _Create] = {
    "model": lambda spaces, limits, _rng, _: ModelSearch(spaces, limits),
    EXHAUSTIVE: lambda spaces, limits, _rng, _: FixedStrategy(
        space.order[:limit] for space, limit in zip(spaces, limits, strict=True)
    ),
    "random": lambda spaces, limits, rng, _: FixedStrategy(
        rng.permutation(len(space))[:limit].tolist()
        for space, limit in zip(spaces, limits, strict=True)
    ),
    "halving": lambda spaces, limits, _rng, _: Halving(spaces, limits),
    "optuna": lambda spaces, limits, rng, sampler: OptunaSearch(
        spaces, limits, rng, sampler or "tpe"
    ),
}
"""Name -> what makes the strategy of spaces, the evaluations of each, a source of random numbers,
and what follows the name's colon. ``exhaustive``: everything, or those with the shortest predicted
times; ``random``: drawn without replacement."""


def make_strategy(
    name: str, spaces: Sequence[SearchSpace], limit: Limit, seed: int
) -> TuningStrategy:
    """The strategy called `name`.

    Args:
        spaces: what is searched; empty ones are left out.
        limit: evaluations of each space.
        seed: of its choices.

    Raises:
        UnknownNameError: there is no such strategy or sampler.
        RequestError: a library is missing.
    """
    base, _, variant = name.partition(":")
    if base not in STRATEGIES or (variant and base != "optuna"):
        raise UnknownNameError("strategy", name, STRATEGIES)
    limits = [limit.of(space) for space in spaces]
    return STRATEGIES[base](spaces, limits, np.random.default_rng(seed), variant)
