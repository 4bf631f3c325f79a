"""Optuna's samplers: one study for each shape, whose parameters are those of the configurations."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from numpy.random import Generator

from gemmetry.domain.dispatch import Parameter
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.tuning.search import SearchSpace, SearchTrial

_BATCHES = 5
_MOST_TRIES = 50
"""Proposals for one trial that may be no member of the space, or known, before one is drawn."""
_NONE = "none"
"""The value of a parameter that a configuration does not have."""
_NEEDS = {"gp": ("scipy", "torch"), "cmaes": ("cmaes",), "qmc": ("scipy",)}
"""Libraries that Optuna imports at a sampler's first proposal, and does not install."""
SAMPLERS = ("tpe", "random", "gp", "cmaes", "qmc")


class OptunaSearch:
    """Proposals that are no member of the space are reported to the study as failed, and another
    one is drawn."""

    def __init__(
        self, spaces: Sequence[SearchSpace], limits: Sequence[int], rng: Generator, sampler: str
    ) -> None:
        optuna = _library()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._rng = optuna, rng
        self._spaces, self._limits = spaces, limits
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
        self._choices = [_sorted({point[i] for point in points}) for i in range(len(names))]
        self.proposed: dict[int, Any] = {}
        for one in space.order[: max(len(space.seeds), 1)]:
            self._study.enqueue_trial(dict(zip(names, points[one], strict=True)))

    def propose(self) -> int:
        """A configuration that was not proposed before; there is one."""
        for _ in range(_MOST_TRIES):
            trial = self._study.ask()
            point = tuple(
                trial.suggest_categorical(name, choices)
                for name, choices in zip(self._names, self._choices, strict=True)
            )
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
        states = self._optuna.trial.TrialState
        if trial is not None and ns is None:
            self._study.tell(trial, state=states.FAIL)
        elif trial is not None:
            self._study.tell(trial, ns)
        elif ns is not None:
            known = zip(self._names, self._points[candidate], self._choices, strict=True)
            parameters = {name: (value, choices) for name, value, choices in known}
            distribution = self._optuna.distributions.CategoricalDistribution
            self._study.add_trial(
                self._optuna.trial.create_trial(
                    params={name: value for name, (value, _) in parameters.items()},
                    distributions={n: distribution(c) for n, (_, c) in parameters.items()},
                    value=ns,
                )
            )


def _sorted(values: set[Parameter]) -> list[Parameter]:
    return sorted(values, key=lambda value: (isinstance(value, str), value))


def _sampler(optuna: Any, name: str, rng: Generator) -> Any:
    samplers = optuna.samplers
    seed = int(rng.integers(2**31))
    created = {
        "tpe": lambda: samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=5),
        "random": lambda: samplers.RandomSampler(seed=seed),
        "gp": lambda: samplers.GPSampler(seed=seed),
        "cmaes": lambda: samplers.CmaEsSampler(seed=seed),
        "qmc": lambda: samplers.QMCSampler(seed=seed),
    }
    if name not in created:
        raise UnknownNameError("sampler of Optuna", name, created)
    missing = [one for one in _NEEDS.get(name, ()) if find_spec(one) is None]
    if missing:
        raise RequestError(
            f"Optuna's sampler {name} needs {' and '.join(missing)}, which is not installed",
            hint=f"Install it with: pip install {' '.join(missing)}; or take another sampler.",
        )
    return created[name]()


def _library() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise RequestError(
            "the strategy optuna needs optuna, which is not installed",
            hint="Install it with: pip install 'gemmetry[tune]'",
        ) from error
    return optuna


def create(
    spaces: Sequence[SearchSpace], limits: Sequence[int], rng: Generator, sampler: str
) -> OptunaSearch:
    """See :func:`gemmetry.tuning.search.make_strategy`; without a `sampler`: TPE."""
    return OptunaSearch(spaces, limits, rng, sampler or "tpe")
