"""Matching of the kernels of two reports of counters.

Compares reports of hardware counters kernel by kernel: metrics with noise, and diagnoses.

A comparison of counters as a JSON document, and as a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from operator import methodcaller
from os import PathLike
from typing import Any, NamedTuple

from gemmetry.counters.catalogue import concept_of, value_of
from gemmetry.counters.facts import stall_shares
from gemmetry.counters.model import LaunchDiagnosis
from gemmetry.counters.roofline import LaunchRoofline, roofline_of
from gemmetry.domain.rows import SCHEMA_VERSION, Row, Rows, derived, fact, inline
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import plural
from gemmetry.formats.counters.launches import ProfiledLaunch
from gemmetry.results.emit import Result
from gemmetry.statistics.comparison import (
    Difference,
    compare_medians,
    is_testable,
    verdict_of,
)
from gemmetry.statistics.intervals import median
from gemmetry.traces.names import classify
from gemmetry.traces.names.words import KernelKind

SAME_WORK = 0.1
"""Counted operations of one GEMM differ by less than this: tiles of other sizes compute other
amounts of padding."""


@dataclass(frozen=True)
class Variant:
    """The launches of one kernel with one grid and block in a report."""

    launches: Sequence[ProfiledLaunch]
    diagnoses: Sequence[LaunchDiagnosis]

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.launches[0].name

    @cached_property
    def kind(self) -> KernelKind:
        """Kind of computation, as far as the name shows."""
        return classify(self.name).kind

    @property
    def total_ns(self) -> float:
        """The time of all launches."""
        return sum(one.duration_ns or 0.0 for one in self.launches)

    @cached_property
    def middle(self) -> int:
        """Position of the launch of median duration."""
        times = [one.duration_ns or 0.0 for one in self.launches]
        return sorted(range(len(times)), key=times.__getitem__)[len(times) // 2]

    @property
    def diagnosis(self) -> LaunchDiagnosis:
        """Diagnosis of the launch with the median duration."""
        return self.diagnoses[self.middle]

    @cached_property
    def roofline(self) -> LaunchRoofline | None:
        """Roofline of the launch with the median duration."""
        return roofline_of(self.launches[self.middle])

    @property
    def operations(self) -> float | None:
        """Counted operations; None where they were not counted."""
        return None if self.roofline is None else self.roofline.operations


class Match(NamedTuple):
    """Two variants that are compared."""

    first: Variant
    second: Variant
    reason: str
    """Common properties of the two kernels."""


def variants_of(
    launches: Sequence[ProfiledLaunch], diagnoses: Sequence[LaunchDiagnosis]
) -> list[Variant]:
    """The launches grouped by name, grid and block, in the order of their first ones."""
    groups = grouped(zip(launches, diagnoses, strict=True), lambda pair: _key(pair[0]))
    return [
        Variant([launch for launch, _ in pairs], [found for _, found in pairs])
        for pairs in groups.values()
    ]


def match_variants(
    first: Sequence[Variant], second: Sequence[Variant]
) -> tuple[list[Match], list[Variant], list[Variant]]:
    """Pairs, and what only the first and only the second report has.

    The same name with the same grid comes first, then the same name with the same work, the same
    name in order, GEMMs with the same work, and at last kernels of the same kind in order where
    both reports have as many of them left.
    """
    left, right = list(first), list(second)
    found: list[Match] = []

    def pair(reason: str, fits: Callable[[Variant, Variant], bool]) -> None:
        for one in list(left):
            other = next((candidate for candidate in right if fits(one, candidate)), None)
            if other is not None:
                found.append(Match(one, other, reason))
                left.remove(one)
                right.remove(other)

    pair("the same name and grid", lambda a, b: (
        _key(a.launches[0]) == _key(b.launches[0])
    ))  # fmt: skip
    pair("the same name and work", lambda a, b: a.name == b.name and has_same_work(a, b) is True)
    pair("the same name", lambda a, b: a.name == b.name)
    pair("GEMMs with the same work", lambda a, b: (
        a.kind is b.kind is KernelKind.GEMM and has_same_work(a, b) is True
    ))  # fmt: skip
    for kind in dict.fromkeys(one.kind for one in left):
        count = sum(one.kind is kind for one in left)
        if count == sum(one.kind is kind for one in right):
            pair("the order of the launches", lambda a, b, kind=kind: a.kind is b.kind is kind)  # type: ignore[misc]
    order = {id(one): place for place, one in enumerate(first)}
    return sorted(found, key=lambda match: order[id(match.first)]), left, right


def has_same_work(first: Variant, second: Variant) -> bool | None:
    """Whether their operations agree within :data:`SAME_WORK`; None where they were not counted."""
    a, b = first.operations, second.operations
    if not a or not b:
        return None
    return abs(a - b) <= SAME_WORK * max(a, b)


def _key(launch: ProfiledLaunch) -> Hashable:
    return launch.name, launch.info.grid, launch.info.block


THRESHOLD = 0.01
"""Relative differences up to this count as none, as in ``gemmetry compare``."""

PERCENT = "%"

FIXED = frozenset((
    "registers_per_thread", "shared_bytes_per_block", "blocks", "threads_per_block",
    "cluster_size", "occupancy_theoretical_percent", "waves_per_sm",
))  # fmt: skip
"""Concepts that follow from the launch: they are not measured, and so have no noise."""

CONCEPTS = (
    "duration", "sm_clock", "tensor_pipe_percent", "compute_percent", "memory_percent",
    "dram_percent", "l2_percent", "dram_read_bytes", "dram_write_bytes", "l2_bytes",
    "l2_hit_percent", "tma_load_bytes", "tma_store_bytes", "shared_conflicts",
    "shared_wavefronts", "global_load_sectors", "local_instructions", "issue_active",
    "occupancy_theoretical_percent", "occupancy_achieved_percent", "registers_per_thread",
    "shared_bytes_per_block", "blocks", "threads_per_block", "waves_per_sm",
)  # fmt: skip
"""Concepts of the catalogue that are compared by default."""

STALL_SHARE = "stall_share_"
"""Prefix of the shares of stall reasons."""

MOST_STALLS = 5
"""Stall reasons that are compared: the largest of either side."""

_PRESENCE = "0 in every launch of one side and in none of the other"

_HIGHER, _LOWER, _SAME = "higher", "lower", "same"
_WORDS = {Difference.SLOWER: _HIGHER, Difference.FASTER: _LOWER}


class MetricChange(Row):
    """One metric of a kernel in two reports; medians over its launches."""

    metric: str = fact("a concept of the catalogue, or a metric's id")
    unit: str = fact()
    first: float | None = fact("median in the first report")
    second: float | None = fact("median in the other report")

    @derived("second - first")
    def difference(self) -> float | None:
        """Difference in the metric's unit (percentage points for percentages)."""
        if self.first is None or self.second is None:
            return None
        return self.second - self.first

    @derived("second / first")
    def ratio(self) -> float | None:
        """Second over first; None where the first is 0."""
        return self.second / self.first if self.first and self.second is not None else None

    @derived("lower end of the ratio's interval")
    def ratio_low(self) -> float | None:
        """Lower end of the interval; None without one."""
        return self.interval[0] if self.interval else None

    @derived("upper end of the ratio's interval")
    def ratio_high(self) -> float | None:
        """Upper end of the interval; None without one."""
        return self.interval[1] if self.interval else None

    verdict: str = fact()
    """``higher``, ``lower``, ``no difference shown`` or ``undecided``; ``same`` for noiseless
    properties of the launch; "" where a side lacks the metric."""
    interval: tuple[float, float] | None = None
    """Interval of second / first. All intervals of the comparison hold together with 95 %."""
    note: str = fact(default="")


class ComparisonRow(Row):
    """A metric of a kernel in two reports."""

    kernel: str = fact("its name in the first report")
    compared_kernel: str = fact("its name in the other report")
    report: str = fact("label of the other report")
    change: MetricChange = inline()
    first_verdict: str = fact("verdict of the diagnosis in the first report")
    second_verdict: str = fact("verdict of the diagnosis in the other report")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelComparison:
    """One kernel in two reports."""

    first: Variant
    second: Variant
    label: str
    """Label of the second report."""
    matched_by: str
    metrics: Sequence[MetricChange]
    gone: Sequence[str]
    """Ids of findings that only the first has."""
    new: Sequence[str]
    """Ids of findings that only the second has."""
    note: str = ""

    @property
    def sides(self) -> tuple[Variant, Variant]:
        """Both, the first one first."""
        return self.first, self.second

    def rows(self) -> Iterator[ComparisonRow]:
        """A row for each metric."""
        for change in self.metrics:
            yield ComparisonRow(
                kernel=self.first.name, compared_kernel=self.second.name, report=self.label,
                change=change, first_verdict=self.first.diagnosis.verdict.id,
                second_verdict=self.second.diagnosis.verdict.id,
            )  # fmt: skip

    def document(self) -> dict[str, Any]:
        """The comparison of the kernel in JSON."""
        return {
            "kernel": self.first.name,
            "compared_kernel": self.second.name,
            "report": self.label,
            "matched_by": self.matched_by,
            "note": self.note,
            "launches": [len(side.launches) for side in self.sides],
            "verdicts": [asdict(side.diagnosis.verdict) for side in self.sides],
            "gone": self.gone,
            "new": self.new,
            "metrics": [
                {**asdict(change), "difference": change.difference, "ratio": change.ratio}
                for change in self.metrics
            ],
            "rooflines": [side.roofline and asdict(side.roofline) for side in self.sides],
        }


@dataclass(frozen=True, slots=True)
class CounterReport:
    """The kernels of one report."""

    label: str
    source: str
    variants: Sequence[Variant]


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterComparison:
    """Reports compared with the first one."""

    reports: Sequence[CounterReport]
    kernels: Sequence[KernelComparison]
    unmatched: Sequence[tuple[str, str]]
    """Label of the report, and name of a kernel that has no counterpart."""
    problems: Sequence[str] = ()
    """Files that could not be read."""

    def document(self) -> dict[str, Any]:
        """The content of ``gemmetry counters compare --json``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "reports": [{"label": one.label, "source": one.source} for one in self.reports],
            "kernels": [one.document() for one in self.kernels],
            "unmatched": [{"report": label, "kernel": name} for label, name in self.unmatched],
            "problems": list(self.problems),
        }

    def write(self, path: str | PathLike[str]) -> None:
        """Write the document (.json), a page (.html), rooflines as a picture (.png, .svg), or a
        table with a row per metric.

        Raises:
            RequestError: unknown suffix, or a library is missing. StorageError: not writable.
        """
        from gemmetry.counters.page import comparison_page, comparison_panels, figure_forms

        rows = [row for one in self.kernels for row in one.rows()]
        forms: dict[str, Callable[[], str | bytes]] = {
            ".html": lambda: comparison_page(self),
            **figure_forms(lambda: comparison_panels(self)),
        }
        found = {"counter_comparison": Rows(ComparisonRow, rows)}
        Result(rows=found, forms=forms, whole=self.document).write(path)


def compare_counters(
    reports: Sequence[CounterReport], metrics: Sequence[str] = (), threshold: float = THRESHOLD
) -> CounterComparison:
    """Compare each further report with the first.

    Args:
        metrics: further concepts of the catalogue, or ids of metrics.
        threshold: relative differences up to this count as none.
    """
    first, *others = reports
    matches: list[tuple[str, Match, list[tuple[str, str, Values]]]] = []
    unmatched: list[tuple[str, str]] = []
    for other in others:
        found, left, right = match_variants(first.variants, other.variants)
        matches += [(other.label, one, _values(one.first, one.second, metrics)) for one in found]
        unmatched += [(first.label, one.name) for one in left]
        unmatched += [(other.label, one.name) for one in right]
    family = sum(_testable(*pair) for *_, rows in matches for name, _, pair in rows
                 if name not in FIXED)  # fmt: skip
    kernels = []
    for label, match, rows in matches:
        before, after = (
            [finding.id for finding in one.diagnosis.findings]
            for one in (match.first, match.second)
        )
        kernels.append(KernelComparison(
            first=match.first, second=match.second, label=label, matched_by=match.reason,
            metrics=[_change(name, unit, *pair, max(family, 1), threshold)
                     for name, unit, pair in rows],
            gone=[one for one in before if one not in after],
            new=[one for one in after if one not in before],
            note=_note(match.first, match.second),
        ))  # fmt: skip
    return CounterComparison(
        reports=reports, kernels=kernels, unmatched=list(dict.fromkeys(unmatched))
    )


def _note(first: Variant, second: Variant) -> str:
    if has_same_work(first, second) is False:
        return (
            f"the work differs: {first.operations:.4g} and {second.operations:.4g} operations were "
            "counted"
        )
    devices = {one.launches[0].info.device for one in (first, second)}
    return f"the GPUs differ: {' and '.join(sorted(devices))}" if len(devices) > 1 else ""


Values = tuple[list[float], list[float]]


def _values(
    first: Variant, second: Variant, metrics: Sequence[str]
) -> list[tuple[str, str, Values]]:
    """Name, unit, and the values of all launches of both; without what neither has."""
    shown: list[tuple[str, str, Callable[[ProfiledLaunch], float | None]]] = []
    for name in dict.fromkeys((*CONCEPTS, *metrics)):
        if "." in name or "__" in name:
            shown.append((name, first.launches[0].unit(name), methodcaller("value", name)))
        else:
            shown.append((name, concept_of(name).unit, partial(value_of, concept=name)))
        if name == "duration":
            shown.append(("operations_per_second", "FLOP/s", _operations_per_s))
            shown.append(("share_of_lowest_roof", PERCENT, _roof_share))
    shown += [(f"{STALL_SHARE}{reason}", PERCENT, partial(_stall, reason=reason))
              for reason in _reasons(first, second)]  # fmt: skip
    rows = []
    for name, unit, of in shown:
        both = (_known(map(of, first.launches)), _known(map(of, second.launches)))
        if any(map(any, both)):
            rows.append((name, unit, both))
    return rows


def _known(values: Iterable[float | None]) -> list[float]:
    return [one for one in values if one is not None and math.isfinite(one)]


def _operations_per_s(launch: ProfiledLaunch) -> float | None:
    return found.operations_per_s if (found := roofline_of(launch)) is not None else None


def _roof_share(launch: ProfiledLaunch) -> float | None:
    found = roofline_of(launch)
    if found is None or not found.attainable or found.operations_per_s is None:
        return None
    return 100 * found.operations_per_s / found.attainable


def _reasons(first: Variant, second: Variant) -> list[str]:
    largest: dict[str, float] = {}
    for one in (first, second):
        shares = stall_shares(one.launches[one.middle])
        for reason, share in shares.ranked() if shares is not None else ():
            largest[reason] = max(share, largest.get(reason, 0.0))
    return sorted(largest, key=lambda reason: -largest[reason])[:MOST_STALLS]


def _stall(launch: ProfiledLaunch, reason: str) -> float | None:
    shares = stall_shares(launch)
    return None if shares is None or shares.missing else 100 * shares.shares.get(reason, 0.0)


def _testable(first: Sequence[float], second: Sequence[float]) -> bool:
    positive = all(one > 0 for one in (*first, *second))
    return positive and is_testable(len(first), len(second), by_rounds=False)


def _appears(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether `first` is 0 in all of its launches and `second` in none: no noise explains that, and
    with as many launches as a test needs it is a difference, although it has no ratio."""
    from_zero = not any(first) and all(one > 0 for one in second)
    return from_zero and is_testable(len(first), len(second), by_rounds=False)


def _change(
    metric: str, unit: str, first: Sequence[float], second: Sequence[float], family: int,
    threshold: float,
) -> MetricChange:  # fmt: skip
    a, b = (median(side) if side else None for side in (first, second))
    verdict, interval, note = "", None, ""
    if a is not None and b is not None:
        if metric in FIXED:
            verdict = _SAME if a == b else _HIGHER if b > a else _LOWER
        elif _testable(first, second):
            found = compare_medians(first, second, relevant=threshold, family=family)
            difference, interval = verdict_of(found.interval, found.relevant), found.interval
            verdict = _WORDS.get(difference, str(difference))
            if interval is None:
                note = _few(first, second)
        elif _appears(first, second) or _appears(second, first):
            verdict, note = _HIGHER if b > a else _LOWER, _PRESENCE
        else:
            verdict, note = str(Difference.UNDECIDED), _few(first, second)
    return MetricChange(
        metric=metric, unit=unit, first=a, second=b, verdict=verdict, interval=interval, note=note
    )


def _few(first: Sequence[float], second: Sequence[float]) -> str:
    fewest = min(len(first), len(second))
    if any(one <= 0 for one in (*first, *second)):
        return "a ratio of zeros has no interval"
    return f"{plural(fewest, 'launch', 'launches')} a side: profile more of them"
