"""The protocol of strategies: they ``ask`` for trials and ``learn`` their times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

import numpy as np

from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.tuning.space import SearchSpace

EFFORTS = (1 / 9, 1 / 3, 1.0)
"""Shares of the samples of a full trial that short trials take: thirds, as in Hyperband (Li et al.,
JMLR 18, 2018, which recommends 3 or 4)."""
FULL = len(EFFORTS) - 1

EXHAUSTIVE = "exhaustive"
"""The strategy that tries all configurations."""

STRATEGIES = {
    "model": "model",
    EXHAUSTIVE: "exhaustive",
    "random": "random_order",
    "halving": "halving",
    "optuna": "optuna_sampler",
}
"""Name of each strategy -> its module in :mod:`.strategies`; ``optuna:NAME`` takes a sampler."""
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
        """In evaluations: the share of a full trial's samples."""
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
    """How many evaluations of each space a search may make."""

    count: int | None = None
    share: float | None = None
    """Of the space, above 0 and up to 1. Without either, all of it."""

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
        RequestError: it is neither a positive number nor a share up to 100 %.
    """
    number = text.strip().removesuffix("%").strip()
    is_share = text.strip().endswith("%")
    try:
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
    module = import_module(f"gemmetry.tuning.strategies.{STRATEGIES[base]}")
    create: Callable[..., TuningStrategy] = module.create
    limits = [limit.of(space) for space in spaces]
    rng = np.random.default_rng(seed)
    return create(spaces, limits, rng, variant) if base == "optuna" else create(spaces, limits, rng)
