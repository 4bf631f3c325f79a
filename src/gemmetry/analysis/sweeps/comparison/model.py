"""What a comparison of sweeps consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gemmetry.analysis.sweeps.model import SweepConfiguration
from gemmetry.statistics.comparison import Comparison, Difference

if TYPE_CHECKING:
    from gemmetry.analysis.sweeps.products.model import ProductSweep


class RowGroup(StrEnum):
    """Rows that answer one question; the intervals of a group hold together."""

    WHOLE = "whole"
    """The sweeps as a whole."""
    STEP = "step"
    """The time of a step at each point."""
    PARTS = "parts"
    """By how much each part of a step changes the step."""
    GEMMS = "gemms"
    COLLECTIVES = "collectives"


SHOWN_SAME = "the same runs on both sides: nothing can differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSweep:
    """A sweep of a comparison."""

    label: str
    document: Mapping[str, Any]
    """The content of ``analysis.json``."""
    products: Callable[[], ProductSweep] | None = None
    """What its plots are made from; None where it was analysed before, with its plots."""

    @property
    def title(self) -> str:
        """The folder of the sweep."""
        return str(self.document.get("sweep", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One figure of a candidate compared with the same figure of the first sweep."""

    group: RowGroup
    configuration: SweepConfiguration | None
    """None of the whole sweep."""
    other_configuration: SweepConfiguration | None = None
    """That of the candidate, where it is another one."""
    what: Mapping[str, Any]
    """What is compared: the keys of a GEMM or a collective in ``analysis.json``; {} otherwise."""
    measure: str
    """The key of the figure: ``step_ms``, ``exposed_comm_ms``, ``alone_median_us`` ..."""
    unit: str
    before: float
    """Geometric mean over the runs of the first sweep; arithmetic mean of parts of a step, which
    may be 0."""
    after: float
    runs: tuple[int, int]
    """Runs of both sides."""
    comparison: Comparison
    """Of a part of the step: the step with only this part changed, over the first sweep's."""
    note: str = ""
    """What weakens the comparison, or why it is undecided."""

    @property
    def verdict(self) -> Difference:
        """What the runs show about the candidate."""
        return self.comparison.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSweep:
    """One candidate compared with the first sweep."""

    label: str
    title: str
    rows: tuple[SweepRow, ...]
    only_first: tuple[SweepConfiguration, ...]
    """Configurations that the candidate lacks."""
    only_candidate: tuple[SweepConfiguration, ...]
    lost: tuple[SweepConfiguration, ...]
    """Configurations that both have, and of which only the first sweep has a run that can be
    compared: those of the candidate failed, or their traces are not whole."""
    left_out: tuple[tuple[str, Mapping[str, Any]], ...]
    """Label of a sweep, and the keys and ``reason`` of a point of it that has steps and is not
    compared."""
    environment_differences: tuple[str, ...]
    is_same: bool
    """It is the first sweep itself, or a copy of it."""

    def of(self, group: RowGroup) -> list[SweepRow]:
        """The rows of one group."""
        return [row for row in self.rows if row.group is group]

    @property
    def has_common_points(self) -> bool:
        """Whether there is a configuration that both sweeps measured."""
        return bool(self.of(RowGroup.STEP))

    @property
    def regressions(self) -> list[SweepRow]:
        """Rows that are shown to be slower; parts of a step explain and do not count."""
        return [
            row
            for row in self.rows
            if row.verdict is Difference.SLOWER and row.group is not RowGroup.PARTS
        ]

    @property
    def undecided(self) -> list[SweepRow]:
        """Times of steps that are undecided; those of the whole where no point is common."""
        group = RowGroup.STEP if self.has_common_points else RowGroup.WHOLE
        return [row for row in self.of(group) if row.verdict is Difference.UNDECIDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepComparison:
    """Every candidate compared with the first sweep."""

    label: str
    title: str
    candidates: tuple[ComparedSweep, ...]
    threshold: float
    confidence: float

    @property
    def has_regression(self) -> bool:
        """Whether a candidate is shown to be slower in anything, or lost a configuration."""
        return any(one.regressions or one.lost for one in self.candidates)

    @property
    def has_undecided(self) -> bool:
        """Whether the time of a step of any candidate is undecided."""
        return any(one.undecided for one in self.candidates)
