"""Compares sweeps with the first of them: every figure with a ratio, an interval and a verdict.

Runs are the observations: what differs between two runs of one point (clocks, placement,
neighbours) is common to all steps and ranks of a run. The spread between runs is estimated from all
points of both sweeps together (:mod:`gemmetry.statistics.comparison`).

Sweeps are compared by their documents (``analysis.json``), which may have been written before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import read_json
from gemmetry.domain.rows import SCHEMA_VERSION, Row, Rows, fact, inline
from gemmetry.domain.tables import grouped
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
from gemmetry.sweeps.folder import analysis_folder, has_traces, read_sweep, sweep_of
from gemmetry.sweeps.gemms import RELEVANT
from gemmetry.sweeps.rows import (
    CONFIDENCE,
    Configuration,
    PointKeys,
    Ratio,
    SweepConfiguration,
    configuration_entry,
    configuration_of,
)

if TYPE_CHECKING:
    from gemmetry.documents.sweep_files import ReportedSweep

Document: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[Any, ...]
Values: TypeAlias = dict[SweepConfiguration, list[float]]
"""Configuration -> one value per run."""
Facts: TypeAlias = dict[str, tuple[str, ...]]
"""Facts about an environment; most have one member."""

DOCUMENT = "analysis.json"

SHOWN_SAME = "the same runs on both sides: nothing can differ"

PARTS = {
    "compute_ms": "compute",
    "slowed_compute_ms": "slowed compute",
    "exposed_comm_ms": "exposed communication",
    "exposed_copy_ms": "exposed copies",
    "idle_ms": "idle",
}
"""Key of a part of the step -> its name."""

KIND = ("kernel", "m", "n", "k", "batch", "dtype", "layout")
"""Keys that identify a GEMM."""
COLLECTIVE = ("op", "dtype", "bytes", "group_size")
"""Keys that identify a collective."""

WORKBOOKS = "workbooks"
"""``source`` of a document of which only workbooks are left, without steps."""

GEMM_MEASURES = {"alone_median_us": "µs", "overlapped_median_us": "µs", "slowdown": "×"}
_WORKBOOK_MEASURES = {"median_us": "µs"}
_LAUNCHES = ("count", "alone_count", "overlapped_count")

_COMMON = "identity."
"""Beginning of the facts that all points of a sweep have in common."""


class RowGroup(StrEnum):
    """Rows that answer one question; the intervals of a group hold together."""

    WHOLE = "whole"
    STEP = "step"
    """The time of a step at each point."""
    PARTS = "parts"
    """Change of the step due to each of its parts."""
    GEMMS = "gemms"
    COLLECTIVES = "collectives"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSweep:
    """A sweep of a comparison."""

    label: str
    document: Document
    """The content of ``analysis.json``."""
    reported: Callable[[], ReportedSweep] | None = None
    """Data of the plots; None where the sweep was analysed before, with its plots."""

    @property
    def title(self) -> str:
        """The folder of the sweep."""
        return str(self.document.get("sweep", ""))


class ComparedKeys(Row):
    """Keys of a compared GEMM or collective; none of a step."""

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


_NO_KEYS = ComparedKeys()


class SweepRow(Row):
    """One figure of a candidate compared with the same figure of the first sweep."""

    candidate: str = fact("label of the sweep that is compared with the first one")
    group: RowGroup = fact("whole, step, parts, gemms or collectives")
    configuration: SweepConfiguration | None
    """Configuration; None for the whole sweep."""
    point: Configuration = inline()
    other_point: Configuration | None = fact("point of the candidate, if another", column="")
    keys: ComparedKeys = inline()
    measure: str = fact("the compared figure")
    """``step_ms``, ``exposed_comm_ms``, ``alone_median_us`` ..."""
    unit: str = fact("of before and after")
    before: float = fact("in the first sweep, mean over its runs")
    """Geometric; arithmetic of parts of a step, which may be 0."""
    after: float = fact("in the candidate")
    comparison: Comparison
    """Comparison of the step with only this part changed, over the first sweep's."""
    evidence: Ratio = inline()
    runs_before: int = fact("runs of the first sweep")
    runs_after: int = fact("runs of the candidate")
    note: str | None = fact("why it is undecided, or what weakens it")

    @property
    def verdict(self) -> Difference:
        """Conclusion of the runs about the candidate."""
        return self.comparison.verdict

    @property
    def is_shown(self) -> bool:
        """Whether a change is shown."""
        return self.verdict in (Difference.SLOWER, Difference.FASTER)

    @property
    def size(self) -> float:
        """The change, whatever its direction: 1 without any."""
        return max(self.comparison.ratio, 1 / self.comparison.ratio)

    @property
    def place(self) -> str:
        """The point, for people."""
        return self.configuration.label if self.configuration else "all points"


class LeftOut(PointKeys):
    """A point with steps that are not compared."""

    sweep: str = fact("label of its sweep")
    reason: str = fact("why")


class ComparedSweep(Row):
    """One candidate compared with the first sweep."""

    label: str = fact("label of the candidate")
    title: str = fact("its folder", key="sweep")
    is_same: bool = fact("whether it is the first sweep itself, or a copy of it")
    environment_differences: tuple[str, ...] = fact("facts in which the environments differ")
    only_first: tuple[Configuration, ...] = fact("configurations that the candidate lacks")
    only_candidate: tuple[Configuration, ...] = fact("configurations that only it has")
    lost: tuple[Configuration, ...] = fact("configurations that only the first sweep could compare")
    """Both have them, but the runs of the candidate failed, or their traces are not whole."""
    left_out: tuple[LeftOut, ...] = fact("points that are not compared")
    rows: tuple[SweepRow, ...] = fact("the compared figures")

    def rows_of(self, *groups: RowGroup) -> list[SweepRow]:
        """The rows of these groups, one group after the other."""
        return [row for group in groups for row in self.rows if row.group is group]

    @property
    def has_common_points(self) -> bool:
        """Whether there is a configuration that both sweeps measured."""
        return bool(self.rows_of(RowGroup.STEP))

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
        return [row for row in self.rows_of(group) if row.verdict is Difference.UNDECIDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepComparison:
    """Every candidate compared with the first sweep."""

    label: str
    title: str
    candidates: tuple[ComparedSweep, ...]
    threshold: float

    @property
    def has_regression(self) -> bool:
        """Whether a candidate is shown to be slower in anything, or lost a configuration."""
        return any(one.regressions or one.lost for one in self.candidates)

    @property
    def has_undecided(self) -> bool:
        """Whether the time of a step of any candidate is undecided."""
        return any(one.undecided for one in self.candidates)

    def document(self) -> dict[str, Any]:
        """The content of ``gemmetry sweep compare --json``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "first": {"label": self.label, "sweep": self.title},
            "threshold": self.threshold,
            "confidence": CONFIDENCE,
            "candidates": [one.record() for one in self.candidates],
            "has_regression": self.has_regression,
            "has_undecided": self.has_undecided,
        }

    def result(self, page: Callable[[], str]) -> Result:
        """The compared figures of each candidate; its document is that of ``--json``."""
        rows = [row for one in self.candidates for row in one.rows]
        return Result(
            kind="sweep",
            rows={"comparison": Rows(SweepRow, rows)},
            forms={".html": page, ".json": lambda: json_file(self.document())},
        )


def valid_points(document: Document) -> list[Document]:
    """The points whose training ended well, and whose steps are known and comparable."""
    return [
        one
        for one in document["points"]
        if one["outcome"] == "ok" and _time(one) is not None and not one.get("left_out")
    ]


def _time(point: Document) -> float | None:
    """The median step; the whole trace where only workbooks are left."""
    whole = point.get("whole_trace")
    found: float | None = point["step_ms"]["median"] if whole is None else whole["window_ms"]
    return found


def step_values(document: Document) -> Values:
    """The median step of each run, in ms; of workbooks, the whole trace of the slowest rank."""
    return _collected(((one, _time(one)) for one in valid_points(document)), above=0)


def part_values(document: Document, part: str) -> Values:
    """One part of each run's median step, in ms; runs in which it is not known are left out."""
    points = valid_points(document)
    return _collected((one, (one.get("whole_trace") or one)[part]) for one in points)


def kind_values(
    document: Document, entries: str, keys: tuple[str, ...], measure: str
) -> dict[Key, Values]:
    """GEMM or collective, by the values of its `keys` -> one measure of it in each run."""
    ran_well = {
        (configuration_of(one), one["repeat"])
        for one in document["points"]
        if one["outcome"] == "ok"
    }
    ones = [one for one in document[entries] if (configuration_of(one), one["repeat"]) in ran_well]
    found = {
        key: _collected(((one, one[measure]) for one in of), above=0)
        for key, of in grouped(ones, itemgetter(*keys)).items()
    }
    return {key: values for key, values in found.items() if values}


def _collected(
    entries: Iterable[tuple[Document, float | None]], above: float = -math.inf
) -> Values:
    """The values `above` a bound. Times that are not positive, as clocks that differ by more than a
    collective's duration can cause, have no ratio."""
    found: Values = {}
    for entry, value in entries:
        if value is not None and value > above:
            found.setdefault(configuration_of(entry), []).append(value)
    return found


def _launches(document: Document) -> dict[SweepConfiguration, set[Key]]:
    """Configuration -> its collectives (:data:`COLLECTIVE`), each with its launches per run."""
    launches = itemgetter(*COLLECTIVE, "count")
    found = grouped(document["collectives"], configuration_of)
    return {configuration: set(map(launches, ones)) for configuration, ones in found.items()}


def environment_differences(first: Document, second: Document) -> tuple[str, ...]:
    """``nccl_version: 2.27.3 vs 2.28.9``, one line per fact in which the sweeps differ: devices,
    world sizes, versions that the traces record, and what the manifests record. Of a list, only
    the members that the other sweep lacks are shown."""
    mine, theirs = _environment(first), _environment(second)
    return tuple(
        f"{name}: {_value(mine, theirs, name)} vs {_value(theirs, mine, name)}"
        for name in dict.fromkeys([*mine, *theirs])
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


def _environment(document: Document) -> Facts:
    found: dict[str, set[str]] = {}
    for point in document["points"]:
        traced, ranks = len(point["ranks"]), point["world_size"]
        known = {"GPU": point["device"], "ranks": ranks, **point["versions"]}
        if not point.get("left_out"):
            is_whole = not traced or ranks in (None, traced)
            known["ranks that are traced"] = "all" if is_whole else traced
        for name, value in known.items():
            if value is not None:
                found.setdefault(name, set()).add(str(value))
    return {name: tuple(sorted(values)) for name, values in found.items()} | {
        name: tuple(map(str, value)) if isinstance(value, (list, tuple)) else (str(value),)
        for name, value in document.get("environment", {}).items()
    }


def _runs(document: Document) -> object:
    """What two documents of the same runs, one sweep under two names or a copy, have in common."""
    points = [{**one, "folder": ""} for one in document["points"]]
    return points, document["pooled_gemms"], document["collectives"]


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
    first, *others = sweeps
    return SweepComparison(
        label=first.label, title=first.title, threshold=relevant,
        candidates=tuple(_Pair(first, one, relevant).compared() for one in others),
    )  # fmt: skip


class _Figure(NamedTuple):
    """One figure that both sweeps have, before it is judged."""

    configuration: SweepConfiguration | None
    measure: str
    unit: str
    a: Sequence[float]
    """One value per run of the first sweep, as it is shown."""
    b: Sequence[float]
    spread: RunSpread
    keys: ComparedKeys = _NO_KEYS
    note: str = ""
    base: float = 0.0
    """Rest of the first sweep's step, which is added to each value of a part."""


class _Pair:
    """A candidate and the first sweep."""

    def __init__(self, first: LabelledSweep, candidate: LabelledSweep, relevant: float) -> None:
        self.sides, self.relevant = (first, candidate), relevant
        self.a, self.b = self.documents = first.document, candidate.document
        self.is_same = _runs(self.a) == _runs(self.b)
        self.steps = step_values(self.a), step_values(self.b)
        self.time = "step" if self.a.get("source") != WORKBOOKS else "trace"
        self.shared = sorted(self.steps[0].keys() & self.steps[1].keys(), key=lambda one: one.order)

    def compared(self) -> ComparedSweep:
        rows = list(self._whole())
        for group, found in (
            (RowGroup.STEP, self._figures(self.steps, f"{self.time}_ms", "ms")),
            (RowGroup.PARTS, self._part_figures()),
            (RowGroup.GEMMS, self._gemm_figures()),
            (RowGroup.COLLECTIVES, self._collective_figures()),
        ):
            figures = list(found)
            family = max(1, sum(one.spread.degrees > 0 for one in figures))
            rows += [self._row(group, one, self._of_runs(one, family)) for one in figures]
        mine, theirs = (
            dict.fromkeys(
                configuration_of(one) for one in document["points"] if one["outcome"] != "not_run"
            )
            for document in self.documents
        )

        def listed(ones: Iterable[SweepConfiguration]) -> tuple[Configuration, ...]:
            return tuple(map(_row_of, ones))

        return ComparedSweep(
            label=self.sides[1].label,
            title=self.sides[1].title,
            is_same=self.is_same,
            environment_differences=environment_differences(self.a, self.b),
            only_first=listed(one for one in mine if one not in theirs),
            only_candidate=listed(one for one in theirs if one not in mine),
            lost=listed(
                one
                for one in mine
                if one in theirs and one in self.steps[0] and one not in self.steps[1]
            ),
            left_out=tuple(
                LeftOut(
                    **vars(PointKeys.of(one)), sweep=side.label, reason=one["left_out"]
                )
                for side in self.sides
                for one in side.document["points"]
                if one.get("left_out")
            ),
            rows=tuple(rows),
        )  # fmt: skip

    def _whole(self) -> Iterator[SweepRow]:
        """The best configuration of each sweep, and the mean change over the points that both
        have."""
        first, other = (
            min(values, key=lambda one: (geometric_mean(values[one]), one.order))
            for values in self.steps
        )
        best = _Figure(first, f"best_{self.time}_ms", "ms", self.steps[0][first],
                       self.steps[1][other], _spread(self.steps))  # fmt: skip
        another = other if other != first else None
        yield self._row(RowGroup.WHOLE, best, self._of_runs(best, 1), another)
        if len(self.shared) < 2:
            return
        a, b = ([geometric_mean(values[one]) for one in self.shared] for values in self.steps)
        mean = _Figure(None, f"mean_{self.time}_ms", "ms", a, b, RunSpread(0, 0))
        yield self._row(RowGroup.WHOLE, mean, compare_pairs(a, b, relevant=self.relevant))

    def _part_figures(self) -> Iterator[_Figure]:
        for part in PARTS:
            sides = part_values(self.a, part), part_values(self.b, part)
            shared = [one for one in self.shared if all(one in side for side in sides)]
            bases = {one: self._rest_of_step(one, sides[0][one]) for one in shared}
            spread = _spread(
                {one: [bases[one] + value for value in side[one]] for one in shared}
                for side in sides
            )
            for one in shared:
                a, b = (side[one] for side in sides)
                yield _Figure(one, part, "ms", a, b, spread, base=bases[one])

    def _rest_of_step(self, configuration: SweepConfiguration, part: Sequence[float]) -> float:
        """The first sweep's step without the part, in ms. A step without other parts keeps a
        millionth.

        The part may be 0 in another run, and ratios need positive times."""
        step = geometric_mean(self.steps[0][configuration])
        return max(step - _mean(part), step * 1e-6)

    def _gemm_figures(self) -> Iterator[_Figure]:
        measures = GEMM_MEASURES if self.time == "step" else _WORKBOOK_MEASURES
        alike = _launched_alike(self.documents)
        for measure, unit in measures.items():
            mine, theirs = (
                kind_values(one, "pooled_gemms", KIND, measure) for one in self.documents
            )
            points = [{c for values in side.values() for c in values} for side in (mine, theirs)]
            for one in sorted(points[0] & points[1], key=lambda c: c.order):
                for left, right in _same_gemms(mine, theirs, one):
                    if left[1] is None and (left, one) not in alike:
                        continue
                    a, b = mine[left], theirs[right]
                    keys = ComparedKeys(**dict(zip(KIND, left, strict=True)))
                    note = "" if left == right else f"another kernel computes it: {right[0]}"
                    yield _Figure(one, measure, unit, a[one], b[one], _spread((a, b)), keys, note)

    def _collective_figures(self) -> Iterator[_Figure]:
        """Where the size is not known, only of configurations at which both sweeps ran the same
        collectives equally often: elsewhere they may have any size, as with other buckets."""
        mine, theirs = (
            kind_values(one, "collectives", COLLECTIVE, "latency_us") for one in self.documents
        )
        launches = [_launches(one) for one in self.documents]
        alike = [one for one in self.shared if launches[0].get(one) == launches[1].get(one)]
        for key, values in mine.items():
            keys = ComparedKeys(**dict(zip(COLLECTIVE, key, strict=True)))
            known = values.keys() if keys.bytes is not None else alike
            sides = {one: of for one, of in values.items() if one in known}, theirs.get(key, {})
            yield from self._figures(sides, "latency_us", "µs", keys)

    def _figures(
        self, sides: tuple[Values, Values], measure: str, unit: str, keys: ComparedKeys = _NO_KEYS
    ) -> Iterator[_Figure]:
        """One figure for each configuration that both sides have."""
        spread = _spread(sides)
        for one in sorted(sides[0].keys() & sides[1].keys(), key=lambda c: c.order):
            yield _Figure(one, measure, unit, sides[0][one], sides[1][one], spread, keys)

    def _of_runs(self, one: _Figure, family: int) -> Comparison:
        a, b = ([one.base + value for value in side] for side in (one.a, one.b))
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
            candidate=self.sides[1].label,
            group=group,
            configuration=one.configuration,
            point=_row_of(one.configuration or SweepConfiguration()),
            other_point=None if other is None else _row_of(other),
            keys=one.keys,
            measure=one.measure,
            unit=one.unit,
            before=mean(one.a),
            after=mean(one.b),
            runs_before=len(one.a),
            runs_after=len(one.b),
            comparison=comparison,
            evidence=Ratio(comparison=comparison),
            note="; ".join(filter(None, notes)),
        )


def _row_of(one: SweepConfiguration) -> Configuration:
    return Configuration(**configuration_entry(one))


def _same_gemms(
    mine: Mapping[Key, Values], theirs: Mapping[Key, Values], configuration: SweepConfiguration
) -> list[tuple[Key, Key]]:
    """The GEMMs that both sweeps ran at a point: those with the same kernel and shape, then those
    of one shape for which each side has one kernel left, as on different GPUs."""
    sides = [[key for key, values in side.items() if configuration in values]
             for side in (mine, theirs)]  # fmt: skip
    same = [key for key in sides[0] if key in sides[1]]
    left_over = [[key for key in side if key not in same and key[1] is not None] for side in sides]
    by_shape = [grouped(keys, itemgetter(slice(1, None))) for keys in left_over]
    others = [
        (left[0], by_shape[1][shape][0])
        for shape, left in by_shape[0].items()
        if len(left) == 1 and len(by_shape[1].get(shape, ())) == 1
    ]
    return [*((key, key) for key in same), *others]


def _launched_alike(documents: Iterable[Document]) -> set[tuple[Key, SweepConfiguration]]:
    """Kernels of unknown shape, with each point at which all runs launched them equally often, up
    to a tenth, alone and next to communication. Others can have computed other products."""
    gemms = (one for document in documents for one in document["pooled_gemms"])
    unknown = (one for one in gemms if one["m"] is None)
    places = grouped(unknown, lambda one: (itemgetter(*KIND)(one), configuration_of(one)))
    return {
        place
        for place, runs in places.items()
        if all(_about_equal([one.get(name) or 0 for one in runs]) for name in _LAUNCHES)
    }


def _about_equal(counts: Sequence[int]) -> bool:
    return min(counts) >= 0.9 * max(counts)


def _spread(sides: Iterable[Values]) -> RunSpread:
    return run_spread([values for side in sides for values in side.values()])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


_KEYS = ("sweep", "points", "gemms", "pooled_gemms", "collectives", "best")


def read_document(path: Path) -> dict[str, Any]:
    """The document in the file `path`.

    Raises:
        RequestError: the document cannot be read, or is not that of a sweep, or of another version.
    """
    again = "Write it again with: gemmetry sweep analyze SWEEP"
    found = read_json(path, hint=again)
    if not isinstance(found, dict) or not all(name in found for name in _KEYS):
        raise RequestError(f"{path} is not the analysis of a sweep", hint=again)
    version = found.get("schema_version")
    if version != SCHEMA_VERSION:
        raise RequestError(f"{path} has schema version {version}, not {SCHEMA_VERSION}", hint=again)
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
        covered = {
            (configuration_of(one), one["repeat"]): len(one["ranks"]) for one in found["points"]
        }
        if not has_traces(sweep):
            return found if covered else None
        # Earlier versions divided the step of another rank.
        if any("awaited_rank" not in step for one in found["points"] for step in one["steps"]):
            return None
        points, written = read_sweep(folder).points, path.stat().st_mtime_ns
        if covered == {(one.configuration, one.repeat): len(one.traces) for one in points}:
            files = [trace.path for point in points for trace in point.traces]
            return found if all(one.stat().st_mtime_ns <= written for one in files) else None
    except (RequestError, OSError, KeyError, TypeError):
        pass
    return None
