"""Compares sweeps with the first of them: every figure with a ratio, an interval and a verdict.

Runs are the observations: what differs between two runs of one point (clocks, placement,
neighbours) is common to all steps and ranks of a run. The spread between runs is estimated from all
points of both sweeps together (:mod:`gemmetry.statistics.runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import geometric_mean
from typing import Any

from gemmetry.analysis.sweeps.comparison.figures import (
    COLLECTIVE,
    GEMM_MEASURES,
    KIND,
    PARTS,
    WORKBOOK_MEASURES,
    WORKBOOKS,
    Key,
    Values,
    collective_launches,
    collective_values,
    configuration_of,
    environment_differences,
    gemm_values,
    is_same_sweep,
    part_values,
    step_values,
    valid_points,
)
from gemmetry.analysis.sweeps.comparison.model import (
    SHOWN_SAME,
    ComparedSweep,
    LabelledSweep,
    RowGroup,
    SweepComparison,
    SweepRow,
)
from gemmetry.analysis.sweeps.document import configuration_entry
from gemmetry.analysis.sweeps.model import SweepConfiguration
from gemmetry.analysis.sweeps.ranks.cause import RELEVANT
from gemmetry.domain.errors import RequestError
from gemmetry.statistics.comparison import Comparison, Difference
from gemmetry.statistics.runs import RunSpread, compare_pairs, compare_runs, run_spread

CONFIDENCE = 0.95
_ANOTHER_KERNEL = "another kernel computes it: "

Document = Mapping[str, Any]


def compare_sweeps(
    sweeps: Sequence[LabelledSweep], *, threshold: float | None = None
) -> SweepComparison:
    """Compare every sweep with the first one.

    Relative differences up to `threshold` count as none (None: 1 %). The intervals of one candidate
    hold together with 95 % within each :class:`RowGroup`.

    Raises:
        RequestError: fewer than two sweeps, or one without a point whose steps are known.
    """
    if len(sweeps) < 2:
        raise RequestError(
            "nothing to compare with", hint="Give two sweeps or more: gemmetry sweep compare A B"
        )
    for one in sweeps:
        if not valid_points(one.document):
            raise RequestError(
                f"{one.title} has no point that ran well and whose traces have steps",
                hint=f"gemmetry sweep analyze {one.title} lists what each point lacks.",
            )
    if len({one.document.get("source") for one in sweeps}) > 1:
        raise RequestError(
            "some of these sweeps have workbooks only, without steps, and others an analysis.json "
            "only",
            hint="Give the folders of the others with their traces, which are then compared like "
            "workbooks.",
        )
    relevant = RELEVANT if threshold is None else threshold
    first = sweeps[0]
    return SweepComparison(
        label=first.label,
        title=first.title,
        candidates=tuple(_Pair(first, one, relevant).compared() for one in sweeps[1:]),
        threshold=relevant,
        confidence=CONFIDENCE,
    )


@dataclass(frozen=True)
class _Figure:
    """One figure that both sweeps have, before it is judged."""

    configuration: SweepConfiguration | None
    measure: str
    unit: str
    a: Sequence[float]
    """One value per run of the first sweep, as it is shown."""
    b: Sequence[float]
    spread: RunSpread
    what: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    base: float | None = None
    """Of a part of the step: the rest of the first sweep's step, which is added to each value."""

    @property
    def judged_values(self) -> tuple[list[float], list[float]]:
        """The values whose ratio is judged."""
        base = self.base or 0.0
        return [base + one for one in self.a], [base + one for one in self.b]


class _Pair:
    """A candidate and the first sweep."""

    def __init__(self, first: LabelledSweep, candidate: LabelledSweep, relevant: float) -> None:
        self.first, self.candidate, self.relevant = first, candidate, relevant
        self.a, self.b = first.document, candidate.document
        self.is_same = is_same_sweep(self.a, self.b)
        self.steps = step_values(self.a), step_values(self.b)
        self.has_steps = self.a.get("source") != WORKBOOKS
        shared = self.steps[0].keys() & self.steps[1].keys()
        self.shared = sorted(shared, key=lambda one: one.order)

    def compared(self) -> ComparedSweep:
        rows = [
            *self._whole(),
            *self._judged(RowGroup.STEP, list(self._step_figures())),
            *self._judged(RowGroup.PARTS, list(self._part_figures())),
            *self._judged(RowGroup.GEMMS, list(self._gemm_figures())),
            *self._judged(RowGroup.COLLECTIVES, list(self._collective_figures())),
        ]
        mine, theirs = (
            {
                configuration_of(one): None
                for one in document["points"]
                if one["outcome"] != "not_run"
            }
            for document in (self.a, self.b)
        )
        return ComparedSweep(
            label=self.candidate.label,
            title=self.candidate.title,
            rows=tuple(rows),
            only_first=tuple(one for one in mine if one not in theirs),
            only_candidate=tuple(one for one in theirs if one not in mine),
            lost=tuple(one for one in mine if one in theirs and self._is_lost(one)),
            left_out=tuple(
                (
                    side.label,
                    {
                        **configuration_entry(configuration_of(one)),
                        "repeat": one["repeat"],
                        "reason": one["left_out"],
                    },
                )
                for side in (self.first, self.candidate)
                for one in side.document["points"]
                if one.get("left_out")
            ),
            environment_differences=environment_differences(self.a, self.b),
            is_same=self.is_same,
        )

    def _name(self, measure: str) -> str:
        """That of the time which is compared."""
        return measure if self.has_steps else measure.replace("step", "trace")

    def _is_lost(self, one: SweepConfiguration) -> bool:
        return one in self.steps[0] and one not in self.steps[1]

    def _whole(self) -> Iterator[SweepRow]:
        """The best configuration of each, and the mean change over the points that both have."""
        bests = [_shortest(values) for values in self.steps]
        best = _Figure(
            bests[0], self._name("best_step_ms"), "ms", self.steps[0][bests[0]],
            self.steps[1][bests[1]], _spread(self.steps),
        )  # fmt: skip
        row = self._row(RowGroup.WHOLE, best, self._of_runs(best, 1))
        yield replace(row, other_configuration=bests[1] if bests[1] != bests[0] else None)
        if len(self.shared) < 2:
            return
        means = [[geometric_mean(values[one]) for one in self.shared] for values in self.steps]
        mean = _Figure(None, self._name("mean_step_ms"), "ms", means[0], means[1], RunSpread(0, 0))
        yield self._row(RowGroup.WHOLE, mean, compare_pairs(mean.a, mean.b, relevant=self.relevant))

    def _step_figures(self) -> Iterator[_Figure]:
        return self._figures(self.steps, self._name("step_ms"), "ms")

    def _part_figures(self) -> Iterator[_Figure]:
        for part in PARTS:
            mine, theirs = part_values(self.a, part), part_values(self.b, part)
            shared = [one for one in self.shared if one in mine and one in theirs]
            bases = {one: self._rest_of_step(one, mine[one]) for one in shared}
            spread = _spread(
                {one: [bases[one] + value for value in side[one]] for one in shared}
                for side in (mine, theirs)
            )
            for one in shared:
                yield _Figure(one, part, "ms", mine[one], theirs[one], spread, base=bases[one])

    def _rest_of_step(self, configuration: SweepConfiguration, part: Sequence[float]) -> float:
        """The first sweep's step without the part, in ms. A millionth of the step is left of one
        that has no other part, because the part may be 0 in another run, and a ratio needs
        positive times."""
        step = geometric_mean(self.steps[0][configuration])
        return max(step - _mean(part), step * 1e-6)

    def _gemm_figures(self) -> Iterator[_Figure]:
        measures = GEMM_MEASURES if self.has_steps else WORKBOOK_MEASURES
        for measure, unit in measures.items():
            mine, theirs = gemm_values(self.a, measure), gemm_values(self.b, measure)
            for configuration in self._all_shared(mine, theirs):
                for left, right in _same_gemms(mine, theirs, configuration):
                    sides = mine[left], theirs[right]
                    note = "" if left == right else f"{_ANOTHER_KERNEL}{right[0]}"
                    yield _Figure(
                        configuration, measure, unit, sides[0][configuration],
                        sides[1][configuration], _spread(sides),
                        dict(zip(KIND, left, strict=True)), note,
                    )  # fmt: skip

    def _collective_figures(self) -> Iterator[_Figure]:
        mine, theirs = (collective_values(one, "latency_us") for one in (self.a, self.b))
        for key, values in mine.items():
            what = dict(zip(COLLECTIVE, key, strict=True))
            alike = self._with_alike_collectives() if what["bytes"] is None else values.keys()
            sides = ({one: of for one, of in values.items() if one in alike}, theirs.get(key, {}))
            yield from self._figures(sides, "latency_us", "µs", what)

    def _with_alike_collectives(self) -> set[SweepConfiguration]:
        """The configurations at which both sweeps ran the same collectives equally often. Elsewhere
        those of unknown size may have any size, as with other buckets."""
        mine, theirs = (collective_launches(one) for one in (self.a, self.b))
        return {one for one in self.shared if mine.get(one) == theirs.get(one)}

    def _figures(
        self,
        sides: tuple[Values, Values],
        measure: str,
        unit: str,
        what: Mapping[str, Any] | None = None,
    ) -> Iterator[_Figure]:
        """One figure for each configuration that both sides have."""
        spread = _spread(sides)
        for one in sorted(sides[0].keys() & sides[1].keys(), key=lambda c: c.order):
            yield _Figure(one, measure, unit, sides[0][one], sides[1][one], spread, what or {})

    def _all_shared(
        self, mine: Mapping[Key, Values], theirs: Mapping[Key, Values]
    ) -> list[SweepConfiguration]:
        sides = [{c for values in side.values() for c in values} for side in (mine, theirs)]
        return sorted(sides[0] & sides[1], key=lambda c: c.order)

    def _judged(self, group: RowGroup, figures: Sequence[_Figure]) -> Iterator[SweepRow]:
        family = max(1, sum(one.spread.degrees > 0 for one in figures))
        for one in figures:
            yield self._row(group, one, self._of_runs(one, family))

    def _of_runs(self, one: _Figure, family: int) -> Comparison:
        a, b = one.judged_values
        return compare_runs(
            a, b, one.spread, confidence=CONFIDENCE, relevant=self.relevant, family=family
        )

    def _row(self, group: RowGroup, one: _Figure, comparison: Comparison) -> SweepRow:
        if self.is_same:
            comparison = replace(
                comparison, ratio=1.0, interval=(1.0, 1.0), verdict=Difference.NONE_SHOWN, note=""
            )
        mean: Callable[[Sequence[float]], float] = _mean if one.base else geometric_mean
        notes = [one.note, SHOWN_SAME if self.is_same else comparison.note]
        return SweepRow(
            group=group,
            configuration=one.configuration,
            what=one.what,
            measure=one.measure,
            unit=one.unit,
            before=mean(one.a),
            after=mean(one.b),
            runs=(len(one.a), len(one.b)),
            comparison=comparison,
            note="; ".join(filter(None, notes)),
        )


def _same_gemms(
    mine: Mapping[Key, Values], theirs: Mapping[Key, Values], configuration: SweepConfiguration
) -> list[tuple[Key, Key]]:
    """The GEMMs that both sweeps ran at a point: those with the same kernel and shape, then those
    of one shape for which each side has one kernel left, as on different GPUs."""
    sides = [[key for key, values in side.items() if configuration in values]
             for side in (mine, theirs)]  # fmt: skip
    same = [key for key in sides[0] if key in sides[1]]
    by_shape: list[dict[Key, list[Key]]] = [{}, {}]
    for side, found in zip(sides, by_shape, strict=True):
        for key in side:
            if key not in same and key[1] is not None:
                found.setdefault(key[1:], []).append(key)
    others = [
        (left[0], by_shape[1][shape][0])
        for shape, left in by_shape[0].items()
        if len(left) == 1 and len(by_shape[1].get(shape, ())) == 1
    ]
    return [*((key, key) for key in same), *others]


def _spread(sides: Iterable[Values]) -> RunSpread:
    return run_spread([values for side in sides for values in side.values()])


def _shortest(values: Values) -> SweepConfiguration:
    return min(values, key=lambda one: (geometric_mean(values[one]), one.order))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
