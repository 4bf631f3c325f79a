"""Search spaces: for each operation, the configurations of one provider with what is known of them
before anything is measured.

The protocol of strategies: they ``ask`` for trials and ``learn`` their times.

The loop of a search: measure the trials that the strategy asks for, and pass it the times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gemmetry.domain.contracts import ProposingProvider, Provider
from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION, Configuration, Parameter, Target
from gemmetry.domain.errors import RequestError
from gemmetry.domain.operation import Operation
from gemmetry.hardware.devices import device_or_like
from gemmetry.providers.launch_model import filled_shares, pipelined_ns

Matrix = NDArray[np.float64]

_ALIKE = 1e-9
"""Standard deviation up to which the values of a feature are the same, but for rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchSpace:
    """The configurations of one operation among which a search chooses."""

    operation: Operation
    configurations: tuple[Configuration, ...]
    predicted: Matrix
    """Logarithm of the predicted time of each, shape (configurations,); equal where no model
    knows the device or the tiles."""
    filled: Matrix
    """Logarithms of :func:`filled_shares`, shape (configurations, 2): what a time may owe to the
    sizes of the operation, and not to the configuration. 0 where no model knows the device."""
    seeds: tuple[int, ...] = field(default=())
    """Configurations to try first, the most promising one first."""

    def __len__(self) -> int:
        return len(self.configurations)

    @property
    def order(self) -> list[int]:
        """All configurations, the seeds first, then by predicted time, then as they are listed."""
        ranked = np.argsort(self.predicted, kind="stable").tolist()
        return list(dict.fromkeys([*self.seeds, *ranked]))


_MODELLED = 3
"""Number of configurations that the model proposes for a provider without proposals."""


def proposed(provider: Provider, operation: Operation, target: Target) -> list[Configuration]:
    """The configurations of `operation` that a provider, or else the model of its space, predicts
    to be fast, the most promising one first."""
    if provider.supports(operation, target) is not None:
        return []
    if isinstance(provider, ProposingProvider):
        return list(provider.proposals(operation, target))
    space = space_of(provider, operation, target)
    return [space.configurations[number] for number in space.order[:_MODELLED]]


def space_of(provider: Provider, operation: Operation, target: Target) -> SearchSpace:
    """The space of `operation`, empty where the provider does not support it."""
    is_supported = provider.supports(operation, target) is None
    found = provider.search_space(operation, target) if is_supported else ()
    return make_space(operation, found, target)


def make_space(
    operation: Operation, configurations: Iterable[Configuration], target: Target
) -> SearchSpace:
    """The space with these configurations, without a ``default`` that only names another one."""
    found = list(dict.fromkeys(configurations))
    others = [one.parameters for one in found if one.name != DEFAULT_CONFIGURATION]
    kept = tuple(
        one
        for one in found
        if one.name != DEFAULT_CONFIGURATION or dict(one.parameters) not in map(dict, others)
    )
    device = device_or_like(target.product, target.architecture) if target.is_gpu else None
    # Without a tile the model's time is that of the best tiles, which says nothing about this one.
    times = [
        math.log(pipelined_ns(operation, one, device)) if device and one.tile else math.nan
        for one in kept
    ]
    predicted = np.array(times, dtype=np.float64)
    usual = np.nanmedian(predicted) if np.isfinite(predicted).any() else 0.0
    shares = [filled_shares(operation, one) if device else (1.0, 1.0) for one in kept]
    return SearchSpace(
        operation,
        kept,
        np.where(np.isnan(predicted), usual, predicted),
        np.log(np.array(shares, dtype=np.float64).reshape(len(kept), 2)),
    )


def features(spaces: Sequence[SearchSpace]) -> list[Matrix]:
    """Features of the configurations of each space, as numbers with a standard deviation of about
    one over all spaces: logarithms of positive parameters, one column for each other value, and the
    logarithms of the predicted time and of the filled shares, where they differ. Each array has the
    shape (configurations, columns)."""
    tables = [[dict(one.parameters) for one in space.configurations] for space in spaces]
    items = [item for table in tables for row in table for item in row.items()]
    names = dict.fromkeys(name for name, value in items if _is_size(value))
    values = dict.fromkeys(item for item in items if not _is_size(item[1]))
    known = [
        np.array(
            [
                [*(_log2(row.get(name)) for name in names),
                 *(float(row.get(name) == value) for name, value in values)]
                for row in table
            ],
            dtype=np.float64,
        ).reshape(len(table), len(names) + len(values))
        for table in tables
    ]  # fmt: skip
    joined = [
        np.column_stack([own, space.predicted - _mean(space.predicted), space.filled])
        for own, space in zip(known, spaces, strict=True)
    ]
    every = np.concatenate(joined) if joined else np.empty((0, 0))
    if not len(every):
        return joined
    scale, center = every.std(axis=0), every.mean(axis=0)
    differ = scale > _ALIKE
    return [((one - center) / np.where(differ, scale, 1.0))[:, differ] for one in joined]


def _mean(values: Matrix) -> float:
    return float(values.mean()) if len(values) else 0.0


def positions(space: SearchSpace) -> Mapping[str, int]:
    """Name of each configuration -> its index."""
    return {one.name: index for index, one in enumerate(space.configurations)}


def _is_size(value: Parameter) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _log2(value: Parameter | None) -> float:
    """The logarithm of a size; of what has none, one step below that of 1."""
    return math.log2(value) if value is not None and _is_size(value) else -1.0  # type: ignore[arg-type]


EFFORTS = (1 / 9, 1 / 3, 1.0)
"""Shares of the samples of a full trial that short trials take: thirds, as in Hyperband (Li et al.,
JMLR 18, 2018, which recommends 3 or 4)."""
FULL = len(EFFORTS) - 1

EXHAUSTIVE = "exhaustive"
"""The strategy that tries all configurations."""

DEFAULT_STRATEGY = "model"


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """A configuration to measure."""

    space: int
    """Index of the space."""
    candidate: int
    """Index of the configuration in its space."""
    effort: int = FULL
    """Index into :data:`EFFORTS`."""

    @property
    def cost(self) -> float:
        """Cost in evaluations: the share of a full trial's samples."""
        return EFFORTS[self.effort]


class TuningStrategy(Protocol):
    """Decides what is measured next. It asks for no trial twice, and for no more evaluations than
    the limits of all spaces together."""

    def ask(self) -> Sequence[SearchTrial]:
        """The trials to measure now; empty at the end of the search."""

    def learn(self, trial: SearchTrial, ns: float | None) -> None:
        """The median of a trial in ns; None where the configuration failed or was wrong."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Maximum number of evaluations of each space."""

    count: int | None = None
    share: float | None = None
    """Share of the space, above 0 and up to 1. Without any limit, the whole space."""

    def of(self, space: SearchSpace) -> int:
        """Evaluations of `space`: at least one where it has a configuration."""
        if self.share is not None:
            return min(len(space), max(1, math.ceil(self.share * len(space) - 1e-9)))
        return len(space) if self.count is None else min(self.count, len(space))

    def __str__(self) -> str:
        if self.share is not None:
            return f"{100 * self.share:g} %"
        return "all" if self.count is None else str(self.count)


def parse_limit(text: str) -> Limit:
    """``40`` -> 40 evaluations of each space; ``5%`` -> a share of it.

    Raises:
        RequestError: `text` is neither a positive number nor a share up to 100 %.
    """
    is_share = text.strip().endswith("%")
    try:
        number = text.strip().removesuffix("%")
        value = float(number) if is_share else int(number)
    except ValueError:
        value = math.nan
    if not value > 0 or (is_share and value > 100):
        raise RequestError(
            f"cannot read the number of evaluations {text!r}",
            hint="Write a number for each shape, such as 40, or a share of its space, as in 5%.",
        )
    return Limit(share=value / 100) if is_share else Limit(count=int(value))


def parse_shares(text: str) -> list[float]:
    """``1%,5%`` -> shares of a space.

    Raises:
        RequestError: a part is not a share up to 100 %.
    """
    limits = [parse_limit(part) for part in text.split(",")]
    shares = [limit.share for limit in limits if limit.share is not None]
    if len(shares) < len(limits):
        raise RequestError(
            f"a simulation compares shares of a space, not {text!r}", hint="Write 1%,5%,10%."
        )
    return shares


Measure = Callable[[Sequence[SearchTrial]], Mapping[SearchTrial, float | None]]
"""Measures trials: the median of each in ns, None where it failed or was wrong. Trials for which
there was no time are left out."""


@dataclass(slots=True)
class SearchHistory:
    """The trials of a search and their times."""

    times: dict[SearchTrial, float | None] = field(default_factory=dict)
    is_complete: bool = True
    """False where the time ended before the search."""

    def ranked(self, space: int) -> list[int]:
        """The measured configurations of a space, the fastest first: those with the most samples
        before those that fell out earlier."""
        best: dict[int, tuple[int, float]] = {}
        for trial, ns in self.times.items():
            if trial.space == space and ns is not None:
                rank = (-trial.effort, ns)
                best[trial.candidate] = min(rank, best.get(trial.candidate, rank))
        return sorted(best, key=lambda one: best[one])

    def count(self, space: int) -> int:
        """Configurations of a space that were tried."""
        return len({trial.candidate for trial in self.times if trial.space == space})

    def failed(self, space: int) -> int:
        """Number of evaluations that failed or were wrong."""
        return len({trial.candidate for trial, ns in self.times.items()
                    if trial.space == space and ns is None})  # fmt: skip

    def cost(self, space: int) -> float:
        """Evaluations of a space, short trials in proportion."""
        return sum(trial.cost for trial in self.times if trial.space == space)


def search(strategy: TuningStrategy, measure: Measure) -> SearchHistory:
    """Run a search to its end, or until `measure` leaves out a trial."""
    history = SearchHistory()
    while trials := strategy.ask():
        found = measure(trials)
        for trial in trials:
            if trial in found:
                history.times[trial] = found[trial]
                strategy.learn(trial, found[trial])
        if len(found) < len(trials):
            history.is_complete = False
            break
    return history
