"""Parts of a diagnosis: a verdict, findings, what they void, and the check of the work.

Rules are functions declared by :func:`rule` in any file of :mod:`gemmetry.counters.rules`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cache
from typing import TYPE_CHECKING

from gemmetry.counters import rules

if TYPE_CHECKING:
    from gemmetry.counters.facts import Facts


class Gate(IntEnum):
    """The gates in their order; the verdict comes from the first one that finds something, except
    that a limit nearby gives way to a wait with better evidence that it does not cause."""

    VALIDITY = 0
    """Whether the counters can mean anything."""
    WORK = 1
    """Whether the kernel did the work that was described."""
    ROOF = 2
    """Whether a unit of the GPU works at its limit."""
    GRID = 3
    """Whether the grid leaves multiprocessors without work. It follows the roofs because a pipe of
    a multiprocessor cannot be at its limit while they idle, whereas a few of them can saturate the
    memory."""
    NEAR_ROOF = 4
    """Whether a unit comes close to its limit."""
    LATENCY = 5
    """Gate of the warps' waits, where no unit is near its limit."""
    COST = 6
    """GemmWork that could be saved: it explains a limit, or is listed after the verdict."""


class Confidence(StrEnum):
    """Confidence in a finding; only ``high`` and ``medium`` count as confident."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    def at_most(self, other: Confidence) -> Confidence:
        """The lower one of the two."""
        return max(self, other, key=list(Confidence).index)

    def exceeds(self, other: Confidence) -> bool:
        """Whether the unit is the higher one of the two."""
        return self is not other and self.at_most(other) is other


HIGH, MEDIUM, LOW = Confidence

CANNOT_TELL = "cannot_tell"
WORK_MISMATCH = "work_mismatch"


COUNTER = "counter"
"""Source of evidence that the report contains as it is."""


@dataclass(frozen=True, slots=True)
class CounterEvidence:
    """A number that a finding rests on."""

    metric: str
    value: float
    unit: str
    source: str
    """:data:`COUNTER`, or the formula by which it was computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Statement of a rule about a launch, before the gates are compared."""

    id: str
    claim: str
    evidence: Sequence[CounterEvidence]
    weight: float
    """Share of the time, or of a unit's work, that it concerns, from 0 to 1; it orders the findings
    of a gate."""
    confidence: Confidence = Confidence.MEDIUM
    against: str = ""
    """Evidence against the claim."""
    remedy: str = ""
    ceiling: str = ""
    """Largest possible gain."""
    voids: frozenset[Gate] = frozenset()
    """Gates whose findings mean nothing if this is the verdict."""
    because: str = ""
    """The reason for that."""
    units: frozenset[str] = frozenset()
    """A cost: the units whose work it is a part of."""
    stalls: frozenset[str] = frozenset()
    """A cost: the stall reasons that it causes."""
    agrees: frozenset[str] = frozenset()
    """A limit nearby: the ids of claims about latency that warps would show because of it."""
    explains: bool = False
    """A cost: whether it is so large that it, not the unit, is the reason for a limit."""


@dataclass(frozen=True, slots=True)
class Suppressed:
    """A finding that a simple threshold would report: a higher gate made it void, or it is too
    small to matter."""

    id: str
    claim: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotCounted:
    """A rule that could not be applied."""

    missing: str
    """Missing counter, as the subject of a sentence."""
    collect: str
    """The options of the profiler that collect it."""


Judgement = Claim | Suppressed | NotCounted


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A claim with the threshold by which it was made."""

    id: str
    claim: str
    evidence: Sequence[CounterEvidence]
    threshold: str
    threshold_source: str
    confidence: Confidence
    against: str = ""
    remedy: str = ""
    ceiling: str = ""
    collect: str = ""
    """Options of the profiler that would confirm it; "" where nothing is missing."""


@dataclass(frozen=True, slots=True)
class LaunchVerdict:
    """Limit of the kernel, as diagnosed."""

    id: str
    claim: str
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class WorkCheck:
    """A quantity of work that was counted, next to what the model of the work expects."""

    quantity: str
    measured: float | None
    """Measured operations or bytes; None where they were not counted."""
    expected: float | None
    verdict: str
    """``ok``, ``skipped``, or what explains the difference; see ``docs/diagnosis.md``."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDiagnosis:
    """The diagnosis of one launch."""

    kernel: str
    device: str
    duration_ns: float | None
    work_check: Sequence[WorkCheck]
    verdict: LaunchVerdict
    findings: Sequence[Finding]
    """Findings, with the one of the verdict first."""
    suppressed: Sequence[Suppressed] = field(default=())


Judge = Callable[["Facts"], Iterable[Judgement]]
"""Function from facts to a rule's judgements; none where it finds nothing."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Recognition of one kind of limit."""

    gate: Gate
    verdicts: Mapping[str, str]
    """Id of each finding that it makes -> its meaning, for the list of verdicts."""
    needs: tuple[str, ...]
    """The concepts of the catalogue that it looks at, as far as a chip has them."""
    threshold: str
    threshold_source: str
    judge: Judge
    """Judge with the rule's name and docstring."""


def rule(
    *, gate: Gate, verdicts: Mapping[str, str], needs: tuple[str, ...], threshold: str,
    threshold_source: str,
) -> Callable[[Judge], Rule]:  # fmt: skip
    """Declare the decorated function as a rule; the arguments are those of :class:`Rule`."""
    return lambda judge: Rule(gate, verdicts, needs, threshold, threshold_source, judge)


@cache
def all_rules() -> tuple[Rule, ...]:
    """The rules in the order of their gates, and of their names."""
    modules = pkgutil.walk_packages(rules.__path__, f"{rules.__name__}.")
    names = (
        one
        for module in modules
        for one in vars(importlib.import_module(module.name)).values()
        if isinstance(one, Rule)
    )
    return tuple(sorted(names, key=lambda one: (one.gate, one.judge.__name__)))


def verdicts() -> dict[str, str]:
    """The id of every verdict -> its meaning, in the order of the gates."""
    return {name: text for one in all_rules() for name, text in one.verdicts.items()}


def uncapitalised(text: str) -> str:
    """`text` with a small first letter, unless it begins with an abbreviation."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
