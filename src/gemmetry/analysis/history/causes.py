"""Why a level changed: rules about a dispatch, its reference of the same run, the other dispatches
of that run, and what changed around them (docs/history.md lists the rules)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from gemmetry.analysis.history.shifts import LevelShift
from gemmetry.statistics.comparison import Difference

QUORUM = 0.8
"""Share of the other dispatches that have to move as well for a cause that all of them share; a
change of few of them has at most 1 - QUORUM. In between, the cause is undecided."""

FEWEST = 3
"""Least number of dispatches from which such a share is taken."""

CLOCK = 0.01
"""Least relative change of the clock that can explain a change of times: steps of an NVIDIA GPU's
clock are 15 MHz, less than 1 % of 2 GHz (nvidia-smi -q -d SUPPORTED_CLOCKS)."""


class ChangeCause(StrEnum):
    """What changed."""

    KERNEL = "kernel"
    """This dispatch, relative to its reference of the same runs."""
    BASELINE = "baseline"
    """The reference: the ratio to it changed, but this dispatch did not; or this is the
    reference."""
    HOST = "host"
    """All dispatches moved together, or the clock explains it."""
    METHOD = "method"
    """The way of measuring changed in that run."""
    ENVIRONMENT = "environment"
    """Software or hardware changed in that run, and the provider's dispatches moved together."""
    NOISE = "noise"
    """The change is smaller than what counts, or the level returned."""
    UNDECIDED = "undecided"
    """The runs do not show which of these it is."""


CAUSES: dict[ChangeCause, str] = {
    ChangeCause.KERNEL: "this dispatch alone, relative to its reference of the same runs",
    ChangeCause.BASELINE: "the reference moved, not the dispatches compared with it",
    ChangeCause.HOST: "all dispatches moved together, or the clock did",
    ChangeCause.METHOD: "the way of measuring changed in that run",
    ChangeCause.ENVIRONMENT: "software or hardware changed, and all of the provider moved",
    ChangeCause.NOISE: "smaller than what counts, or the level returned",
    ChangeCause.UNDECIDED: "the runs do not show the cause",
}


@dataclass(frozen=True, slots=True)
class MovedShare:
    """How many of some dispatches moved as the one in question did."""

    moved: int
    of: int

    @property
    def is_all(self) -> bool:
        return self.of >= FEWEST and self.moved >= QUORUM * self.of

    @property
    def is_few(self) -> bool:
        return self.of >= FEWEST and self.of - self.moved >= QUORUM * self.of

    def __str__(self) -> str:
        return f"{self.moved} of {self.of}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFacts:
    """What the rules see of one change."""

    own: LevelShift | None
    """Of the dispatch's time."""
    relative: LevelShift | None = None
    """Of its ratio to the reference; None without one."""
    reference: LevelShift | None = None
    """Of the reference's time."""
    adjusted: tuple[LevelShift | None, LevelShift | None] = (None, None)
    """Of its time and of the reference's, both relative to the level of their runs."""
    is_reference: bool = False
    others: MovedShare = MovedShare(0, 0)
    """Of all other dispatches of the runs."""
    provider: MovedShare = MovedShare(0, 0)
    """Of the provider's dispatches, this one included."""
    own_method: str = ""
    """How the dispatch's own way of timing changed, e.g. "timed by graph instead of events"."""
    method: tuple[str, ...] = ()
    """What else of the way of measuring changed in that run."""
    environment: tuple[str, ...] = ()
    """What of software and hardware changed in that run."""
    clock: float | None = None
    """Clock after the change over that before it."""
    hints: tuple[str, ...] = ()
    """Observations that explain, but decide nothing: new reasons for throttling, higher load."""
    returned: int = 0
    """Number of runs after which the level returned to that before; 0: it did not."""


Judgement = tuple[ChangeCause, tuple[str, ...]]


def judge(facts: ChangeFacts) -> Judgement:
    """The cause, and sentences that give the reasons for it."""
    cause, why = _cause(facts)
    reasons = [
        why,
        *(f"changed in that run: {text}" for text in _switched(facts) if text not in why),
    ]
    return cause, (*reasons, *facts.hints)


def _cause(facts: ChangeFacts) -> tuple[ChangeCause, str]:
    own, relative = facts.own, facts.relative
    if facts.returned:
        return ChangeCause.NOISE, f"the level returned after {facts.returned} runs"
    has_moved = own is not None and own.has_moved
    is_apart = relative is not None and relative.has_moved
    if not has_moved and not is_apart:
        shown = [one for one in (own, relative) if one is not None]
        if any(one.verdict is Difference.UNDECIDED for one in shown) or not shown:
            return (
                ChangeCause.UNDECIDED,
                "too few runs were measured since, or they differ too much",
            )
        return ChangeCause.NOISE, "the difference is not shown to be more than what counts"
    if not has_moved:
        return _by_ratio(facts)
    if facts.own_method:
        return ChangeCause.METHOD, facts.own_method
    if relative is None:
        return _without_reference(facts)
    assert own is not None
    if relative.is_like(own):
        return _shared(facts) or _not_separable(facts) or (
            ChangeCause.KERNEL, "it moved relative to its reference of the same runs")  # fmt: skip
    if relative.verdict is Difference.UNDECIDED:
        return ChangeCause.UNDECIDED, "the ratio to its reference varies too much to decide"
    common = _shared(facts) or _of_the_host(facts)
    if common:
        return common
    return ChangeCause.UNDECIDED, (
        f"its reference moved as well, but only {facts.others} other dispatches did"
    )


def _by_ratio(facts: ChangeFacts) -> tuple[ChangeCause, str]:
    """The cause of a change of the ratio where the dispatch's own time does not show one: it may
    vary too much from run to run, so the level of all dispatches of each run is taken out."""
    relative, reference = facts.relative, facts.reference
    assert relative is not None
    opposite = {Difference.SLOWER: Difference.FASTER, Difference.FASTER: Difference.SLOWER}
    against = opposite[relative.verdict]
    own, other = facts.adjusted
    moved = [one is not None and one.has_moved for one in (own, other)]
    if reference is not None and reference.verdict is against and not moved[0]:
        return ChangeCause.BASELINE, "its reference moved, it did not"
    if moved == [False, True] and other is not None and other.verdict is against:
        return (
            ChangeCause.BASELINE,
            "its reference moved relative to the other dispatches, it did not",
        )
    if moved == [True, False] and own is not None and own.is_like(relative):
        return _shared(facts) or _not_separable(facts) or (
            ChangeCause.KERNEL, "it moved relative to its reference and to the other dispatches"
        )  # fmt: skip
    return ChangeCause.UNDECIDED, "the ratio changed, but not clearly through either of the two"


def _without_reference(facts: ChangeFacts) -> tuple[ChangeCause, str]:
    found = _shared(facts) or _of_the_host(facts)
    if found:
        return found
    if not facts.others.is_few:
        return ChangeCause.UNDECIDED, f"{facts.others} other dispatches of these runs moved as well"
    unclear = _not_separable(facts)
    if unclear:
        return unclear
    why = f"only {facts.others} other dispatches of these runs moved"
    if facts.is_reference:
        return ChangeCause.BASELINE, f"{why}, and others are compared with it"
    return ChangeCause.KERNEL, why


def _shared(facts: ChangeFacts) -> tuple[ChangeCause, str] | None:
    """A change of method or environment that all of the provider moved with."""
    if not facts.provider.is_all:
        return None
    for cause, found in (
        (ChangeCause.METHOD, facts.method),
        (ChangeCause.ENVIRONMENT, facts.environment),
    ):
        if found:
            return cause, f"{found[0]}; {facts.provider} dispatches of the provider moved"
    return None


def _not_separable(facts: ChangeFacts) -> tuple[ChangeCause, str] | None:
    """Where something changed around a provider with too few dispatches to separate the two."""
    if _switched(facts) and facts.provider.of < FEWEST:
        few = "the provider has too few dispatches to separate the two"
        return ChangeCause.UNDECIDED, f"{_switched(facts)[0]} in that run, and {few}"
    return None


def _of_the_host(facts: ChangeFacts) -> tuple[ChangeCause, str] | None:
    if facts.others.is_all:
        return ChangeCause.HOST, f"{facts.others} other dispatches moved together with it"
    if facts.clock is not None and facts.own is not None:
        clock, time = math.log(facts.clock), math.log(facts.own.ratio)
        if abs(clock) >= CLOCK and 0.5 <= -clock / time <= 1.5:
            return ChangeCause.HOST, f"the clock changed by {100 * (facts.clock - 1):+.1f} %"
    return None


def _switched(facts: ChangeFacts) -> tuple[str, ...]:
    return (*facts.method, *facts.environment)
