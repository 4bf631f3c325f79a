"""What a comparison of sweeps consists of.

The figures of a sweep that are compared, by configuration and run.

Compares sweeps with the first of them: every figure with a ratio, an interval and a verdict.

Runs are the observations: what differs between two runs of one point (clocks, placement,
neighbours) is common to all steps and ranks of a run. The spread between runs is estimated from all
points of both sweeps together (:mod:`gemmetry.statistics.comparison`).

A comparison of sweeps as a document, and its figures as a table.

Analyses of sweeps that were written before: ``analysis.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, TypeAlias

from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import read_json
from gemmetry.domain.rows import SCHEMA_VERSION, Row, Rows, fact, inline
from gemmetry.results.emit import Result
from gemmetry.results.json_text import json_file
from gemmetry.statistics.comparison import (
    Comparison,
    Difference,
    RunSpread,
    compare_pairs,
    compare_runs,
    run_spread,
)
from gemmetry.sweeps.cause import RELEVANT
from gemmetry.sweeps.folder import analysis_folder, has_traces, read_sweep, sweep_of
from gemmetry.sweeps.model import SweepConfiguration
from gemmetry.sweeps.rows import Configuration, Ratio, configuration_entry

if TYPE_CHECKING:
    from gemmetry.documents.sweep_files import ProductSweep


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


class ComparedKeys(Row):
    """What is compared: a GEMM or a collective; nothing of a step."""

    kernel: str | None = fact("of a GEMM", default=None)
    m: int | None = fact("of a GEMM", default=None)
    n: int | None = fact("of a GEMM", default=None)
    k: int | None = fact("of a GEMM", default=None)
    batch: int | None = fact("of a GEMM", default=None)
    dtype: str | None = fact("of a GEMM or collective", default=None)
    layout: str | None = fact("of a GEMM", default=None)
    op: str | None = fact("of a collective", default=None)
    bytes: int | None = fact("size of a collective's message", "B", default=None)
    group_size: int | None = fact("ranks of a collective", default=None)


class SweepRow(Row):
    """One figure of a candidate compared with the same figure of the first sweep."""

    candidate: str = fact("label of the sweep that is compared with the first one")
    group: RowGroup = fact("whole, step, parts, gemms or collectives")
    configuration: SweepConfiguration | None
    """None of the whole sweep."""
    other_configuration: SweepConfiguration | None
    """That of the candidate, where it is another one."""
    point: Configuration = inline()
    other_point: Configuration | None = fact("point of the candidate, if another", column="")
    what: Mapping[str, Any]
    """The keys of a GEMM or a collective in ``analysis.json``; {} otherwise."""
    keys: ComparedKeys = inline()
    measure: str = fact("the compared figure")
    """``step_ms``, ``exposed_comm_ms``, ``alone_median_us`` ..."""
    unit: str = fact("of before and after")
    before: float = fact("in the first sweep, mean over its runs")
    """Geometric; arithmetic of parts of a step, which may be 0."""
    after: float = fact("in the candidate")
    comparison: Comparison
    """Of a part of the step: the step with only this part changed, over the first sweep's."""
    evidence: Ratio = inline()
    runs_before: int = fact("runs of the first sweep")
    runs_after: int = fact("runs of the candidate")
    note: str | None = fact("why it is undecided, or what weakens it")

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


PARTS = ("compute_ms", "slowed_compute_ms", "exposed_comm_ms", "exposed_copy_ms", "idle_ms")
"""The parts of a step."""

KIND = ("kernel", "m", "n", "k", "batch", "dtype", "layout")
"""Keys that identify a GEMM."""
SHAPE = KIND[1:]
COLLECTIVE = ("op", "dtype", "bytes", "group_size")
"""Keys that identify a collective."""

WORKBOOKS = "workbooks"
"""``source`` of a document of which only workbooks are left, without steps."""

WORKBOOK_MEASURES = {"median_us": "µs"}
"""Those of GEMMs in workbooks."""
GEMM_MEASURES = {"alone_median_us": "µs", "overlapped_median_us": "µs", "slowdown": "×"}
"""Measure -> its unit."""

_COMMON = "identity."
"""Beginning of the facts that all points of a sweep have in common."""

Key: TypeAlias = tuple[Any, ...]
Values: TypeAlias = dict[SweepConfiguration, list[float]]
"""Configuration -> one value per run."""
Facts: TypeAlias = dict[str, tuple[str, ...]]
"""Facts about an environment; most have one member."""


def configuration_of(entry: Mapping[str, Any]) -> SweepConfiguration:
    """The configuration of an entry of ``analysis.json``."""
    return SweepConfiguration(
        entry["threads"], entry["channels"], tuple(sorted(entry["axes"].items()))
    )


def valid_points(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The points whose training ended well, and whose steps are known and comparable."""
    return [
        one
        for one in document["points"]
        if one["outcome"] == "ok" and _time(one) is not None and not one.get("left_out")
    ]


def _time(point: Mapping[str, Any]) -> float | None:
    """The median step; the whole trace where only workbooks are left."""
    found: float | None = point["step_ms"]["median"]
    whole = point.get("whole_trace")
    return found if whole is None else whole["window_ms"]


def step_values(document: Mapping[str, Any]) -> Values:
    """The median step of each run, in ms; of workbooks, the whole trace of the slowest rank."""
    return _positive(_collected((one, _time(one)) for one in valid_points(document)))


def part_values(document: Mapping[str, Any], part: str) -> Values:
    """One part of each run's median step, in ms; runs in which it is not known are left out."""
    return _collected(
        (one, (one.get("whole_trace") or one)[part]) for one in valid_points(document)
    )


def gemm_values(document: Mapping[str, Any], measure: str) -> dict[Key, Values]:
    """GEMM (:data:`KIND`) -> one measure of it in each run."""
    return _by_kind(document, "pooled_gemms", KIND, measure)


def collective_values(document: Mapping[str, Any], measure: str) -> dict[Key, Values]:
    """Collective (:data:`COLLECTIVE`) -> one measure of it in each run."""
    return _by_kind(document, "collectives", COLLECTIVE, measure)


def _by_kind(
    document: Mapping[str, Any], entries: str, keys: tuple[str, ...], measure: str
) -> dict[Key, Values]:
    ran_well = {
        (configuration_of(one), one["repeat"])
        for one in document["points"]
        if one["outcome"] == "ok"
    }
    found: dict[Key, list[tuple[Mapping[str, Any], float | None]]] = {}
    for one in document[entries]:
        if (configuration_of(one), one["repeat"]) in ran_well:
            key = tuple(one[name] for name in keys)
            found.setdefault(key, []).append((one, one[measure]))
    return {key: values for key, of in found.items() if (values := _positive(_collected(of)))}


def _positive(values: Values) -> Values:
    """Without times that are not positive, which clocks that differ by more than a collective takes
    can give it: they have no ratio."""
    found = {one: [value for value in of if value > 0] for one, of in values.items()}
    return {one: of for one, of in found.items() if of}


def _collected(entries: Iterable[tuple[Mapping[str, Any], float | None]]) -> Values:
    found: Values = {}
    for entry, value in entries:
        if value is not None:
            found.setdefault(configuration_of(entry), []).append(value)
    return found


def collective_launches(
    document: Mapping[str, Any],
) -> dict[SweepConfiguration, set[tuple[Any, ...]]]:
    """Configuration -> its collectives (:data:`COLLECTIVE`), each with its launches per run."""
    found: dict[SweepConfiguration, set[tuple[Any, ...]]] = {}
    for one in document["collectives"]:
        launches = (*(one[name] for name in COLLECTIVE), one["count"])
        found.setdefault(configuration_of(one), set()).add(launches)
    return found


def environment_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[str, ...]:
    """``nccl_version: 2.27.3 vs 2.28.9``, one line per fact in which the sweeps differ: devices,
    world sizes, versions that the traces record, and what the manifests record. Of a list, only
    the members that the other sweep lacks are shown."""
    mine, theirs = _environment(first), _environment(second)
    return tuple(
        f"{name}: {_value(mine, theirs, name)} vs {_value(theirs, mine, name)}"
        for name in [*mine, *(name for name in theirs if name not in mine)]
        if mine.get(name) != theirs.get(name)
    )


def _value(facts: Facts, others: Facts, name: str) -> str:
    """The members that the other sweep lacks. A manifest that records what the points have in
    common records all of it."""
    if name not in facts:
        is_recorded = name.startswith(_COMMON) and any(one.startswith(_COMMON) for one in facts)
        return "none" if is_recorded else "not recorded"
    values, theirs = facts[name], others.get(name, ())
    in_another_order = sorted(values) == sorted(theirs)
    return ", ".join(one for one in values if in_another_order or one not in theirs) or "none"


def _environment(document: Mapping[str, Any]) -> Facts:
    found: dict[str, set[str]] = {}
    for point in document["points"]:
        traced, ranks = len(point["ranks"]), point["world_size"]
        is_whole = not traced or ranks in (None, traced)
        known = {
            "GPU": point["device"],
            "ranks": ranks,
            "ranks that are traced": None
            if point.get("left_out")
            else "all"
            if is_whole
            else traced,
            **point["versions"],
        }
        for name, value in known.items():
            if value is not None:
                found.setdefault(name, set()).add(str(value))
    texts = {name: tuple(sorted(values)) for name, values in found.items()}
    of_manifest: Mapping[str, Any] = document.get("environment", {})
    return texts | {
        name: tuple(map(str, value)) if isinstance(value, (list, tuple)) else (str(value),)
        for name, value in of_manifest.items()
    }


def is_same_sweep(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether both hold the same runs: one sweep under two names, or a copy of it."""
    return _runs(first) == _runs(second)


def _runs(document: Mapping[str, Any]) -> object:
    points = [{**one, "folder": ""} for one in document["points"]]
    return points, document["pooled_gemms"], document["collectives"]


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
        other = bests[1] if bests[1] != bests[0] else None
        yield self._row(RowGroup.WHOLE, best, self._of_runs(best, 1), other)
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

    def _row(
        self,
        group: RowGroup,
        one: _Figure,
        comparison: Comparison,
        other: SweepConfiguration | None = None,
    ) -> SweepRow:
        if self.is_same:
            comparison = replace(
                comparison, ratio=1.0, interval=(1.0, 1.0), verdict=Difference.NONE_SHOWN, note=""
            )
        mean: Callable[[Sequence[float]], float] = _mean if one.base else geometric_mean
        notes = [one.note, SHOWN_SAME if self.is_same else comparison.note]
        return SweepRow(
            candidate=self.candidate.label,
            group=group,
            configuration=one.configuration,
            other_configuration=other,
            point=Configuration(**configuration_entry(one.configuration or SweepConfiguration())),
            other_point=None if other is None else Configuration(**configuration_entry(other)),
            what=one.what,
            keys=ComparedKeys(**one.what),
            measure=one.measure,
            unit=one.unit,
            before=mean(one.a),
            after=mean(one.b),
            runs_before=len(one.a),
            runs_after=len(one.b),
            comparison=comparison,
            evidence=Ratio.of_comparison(comparison),
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


def comparison_result(comparison: SweepComparison, page: Callable[[], str]) -> Result:
    """The compared figures of each candidate; its document is that of ``--json``."""
    rows = [row for one in comparison.candidates for row in one.rows]
    document = partial(sweep_comparison_document, comparison)
    return Result(
        kind="sweep",
        rows={"comparison": Rows(SweepRow, rows)},
        forms={".html": page, ".json": lambda: json_file(document())},
    )


def sweep_comparison_document(comparison: SweepComparison) -> dict[str, Any]:
    """The content of ``gemmetry sweep compare --json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "first": {"label": comparison.label, "sweep": comparison.title},
        "threshold": comparison.threshold,
        "confidence": comparison.confidence,
        "candidates": [_candidate(one) for one in comparison.candidates],
        "has_regression": comparison.has_regression,
        "has_undecided": comparison.has_undecided,
    }


def _candidate(one: ComparedSweep) -> dict[str, Any]:
    return {
        "label": one.label,
        "sweep": one.title,
        "is_same": one.is_same,
        "environment_differences": list(one.environment_differences),
        "only_first": [configuration_entry(found) for found in one.only_first],
        "only_candidate": [configuration_entry(found) for found in one.only_candidate],
        "lost": [configuration_entry(found) for found in one.lost],
        "left_out": [{"sweep": label, **point} for label, point in one.left_out],
        "rows": [row.record() for row in one.rows],
    }


DOCUMENT = "analysis.json"

_KEYS = ("sweep", "points", "gemms", "pooled_gemms", "collectives", "best")


def read_document(path: Path) -> dict[str, Any]:
    """The document in the file `path`.

    Raises:
        RequestError: it cannot be read, or is not that of a sweep, or of another version.
    """
    again = "Write it again with: gemmetry sweep analyze SWEEP"
    found = read_json(path, hint=again)
    if not isinstance(found, dict) or not all(name in found for name in _KEYS):
        raise RequestError(f"{path} is not the analysis of a sweep", hint=again)
    if found.get("schema_version") != SCHEMA_VERSION:
        raise RequestError(
            f"{path} has schema version {found.get('schema_version')}, not {SCHEMA_VERSION}",
            hint=again,
        )
    return found


def fresh_document(folder: Path) -> dict[str, Any] | None:
    """The document in the sweep's folder if it covers the whole sweep as it is now: every point
    with all of its traces, none of them newer; or if the sweep has no traces any more. None if
    there is no such document.

    Raises:
        RequestError: the folder does not exist.
    """
    sweep = sweep_of(folder)
    path = analysis_folder(sweep) / DOCUMENT
    if not path.is_file():
        return None
    try:
        found = read_document(path)
        written = path.stat().st_mtime_ns
        if _covered(found) and (not has_traces(sweep) or _is_current(found, folder, written)):
            return found
    except (RequestError, OSError, KeyError, TypeError):
        pass
    return None


def _covered(document: Mapping[str, Any]) -> dict[object, int]:
    """Point -> number of its traces that were read."""
    return {(configuration_of(one), one["repeat"]): len(one["ranks"]) for one in document["points"]}


def _is_current(document: Mapping[str, Any], folder: Path, written: int) -> bool:
    covered, sweep = _covered(document), read_sweep(folder)
    if covered != {(one.configuration, one.repeat): len(one.traces) for one in sweep.points}:
        return False
    files = [trace.path for point in sweep.points for trace in point.traces]
    return all(path.stat().st_mtime_ns <= written for path in files)
