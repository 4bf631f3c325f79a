"""Compares reports of hardware counters kernel by kernel: metrics with noise, and diagnoses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gemmetry.analysis.counters.matching import Match, Variant, has_same_work, match_variants
from gemmetry.counters.catalogue import concept_of, value_of
from gemmetry.counters.diagnosis.stalls import stall_shares
from gemmetry.counters.roofline import roofline_of
from gemmetry.domain.units import counted
from gemmetry.formats.counters.launches import ProfiledLaunch
from gemmetry.statistics.comparison import (
    Comparison,
    Difference,
    compare_medians,
    is_testable,
    verdict_of,
)
from gemmetry.statistics.quantiles import median

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
"""Those of the catalogue that are compared without a request."""

STALL_SHARE = "stall_share_"
"""Prefix of the shares of stall reasons."""

MOST_STALLS = 5
"""Stall reasons that are compared: the largest of either side."""

_PRESENCE = "0 in every launch of one side and in none of the other"

_HIGHER, _LOWER, _SAME = "higher", "lower", "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange:
    """One metric of a kernel in two reports; medians over its launches."""

    metric: str
    unit: str
    first: float | None
    second: float | None
    verdict: str
    """``higher``, ``lower``, ``no difference shown`` or ``undecided``; ``same`` for what follows
    from the launch and so has no noise; "" where a side lacks the metric."""
    interval: tuple[float, float] | None = None
    """Of the ratio second / first; all intervals of the comparison hold together with 95 %."""
    note: str = ""

    @property
    def difference(self) -> float | None:
        """Second - first, in the metric's unit (percentage points for percentages)."""
        if self.first is None or self.second is None:
            return None
        return self.second - self.first

    @property
    def ratio(self) -> float | None:
        """Second / first; None where the first is 0."""
        return self.second / self.first if self.first and self.second is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelComparison:
    """One kernel in two reports."""

    first: Variant
    second: Variant
    label: str
    """Of the second report."""
    matched_by: str
    metrics: Sequence[MetricChange]
    gone: Sequence[str]
    """Ids of findings that only the first has."""
    new: Sequence[str]
    """Ids of findings that only the second has."""
    note: str = ""


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


def compare_counters(
    reports: Sequence[CounterReport], metrics: Sequence[str] = (), threshold: float = THRESHOLD
) -> CounterComparison:
    """Compare each further report with the first.

    Args:
        metrics: further concepts of the catalogue, or ids of metrics.
        threshold: relative differences up to this count as none.
    """
    first, *others = reports
    matches: list[tuple[str, Match]] = []
    unmatched: list[tuple[str, str]] = []
    for other in others:
        found, left, right = match_variants(first.variants, other.variants)
        matches.extend((other.label, match) for match in found)
        unmatched += [(first.label, one.name) for one in left]
        unmatched += [(other.label, one.name) for one in right]
    values = [(match, _values(match.first, match.second, metrics)) for _, match in matches]
    family = sum(_testable(*pair) for _, rows in values for name, _, pair in rows
                 if name not in FIXED)  # fmt: skip
    kernels = []
    for (label, _), (match, rows) in zip(matches, values, strict=True):
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
    rows: list[tuple[str, str, Values]] = []

    def add(name: str, unit: str, of: Callable[[ProfiledLaunch], float | None]) -> None:
        both = (_known(map(of, first.launches)), _known(map(of, second.launches)))
        if any(both) and any(map(any, both)):
            rows.append((name, unit, both))

    for name in dict.fromkeys((*CONCEPTS, *metrics)):
        if "." in name or "__" in name:
            add(name, first.launches[0].unit(name), lambda one, name=name: one.value(name))  # type: ignore[misc]
            continue
        concept = concept_of(name)
        add(name, concept.unit, lambda one, concept=concept: value_of(one, concept))  # type: ignore[misc]
        if name == "duration":
            add("operations_per_second", "FLOP/s", _operations_per_s)
            add("share_of_lowest_roof", PERCENT, _roof_share)
    for reason in _reasons(first, second):
        add(f"{STALL_SHARE}{reason}", PERCENT, lambda one, reason=reason: _stall(one, reason))  # type: ignore[misc]
    return rows


def _known(values: Iterable[float | None]) -> list[float]:
    return [one for one in values if one is not None and math.isfinite(one)]


def _operations_per_s(launch: ProfiledLaunch) -> float | None:
    found = roofline_of(launch)
    return None if found is None else found.operations_per_s


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
            verdict, interval = _word(found), found.interval
            if interval is None:
                note = _few(first, second)
        elif _appears(first, second) or _appears(second, first):
            verdict, note = _HIGHER if b > a else _LOWER, _PRESENCE
        else:
            verdict, note = str(Difference.UNDECIDED), _few(first, second)
    return MetricChange(
        metric=metric, unit=unit, first=a, second=b, verdict=verdict, interval=interval, note=note
    )


def _word(comparison: Comparison) -> str:
    verdict = verdict_of(comparison.interval, comparison.relevant)
    words = {Difference.SLOWER: _HIGHER, Difference.FASTER: _LOWER}
    return words.get(verdict, str(verdict))


def _few(first: Sequence[float], second: Sequence[float]) -> str:
    fewest = min(len(first), len(second))
    if any(one <= 0 for one in (*first, *second)):
        return "a ratio of zeros has no interval"
    return f"{counted(fewest, 'launch', 'launches')} a side: profile more of them"
