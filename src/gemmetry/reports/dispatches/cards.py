"""The cards at the top of a page: providers compared on the same operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemmetry.analysis.dispatches.baseline import (
    Problem,
    fastest,
    fastest_per_provider,
    geometric_mean,
    group_by_problem,
    is_of_baseline,
)
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.record import Record
from gemmetry.domain.units import format_gflops
from gemmetry.reports.labels import dtype_label, format_ratio, shape_label

LEAST_SHARED = 0.5
"""Share of the most complete provider's operations that every compared provider must have measured.
A provider with fewer is left out and named, so that one crash does not empty the comparison."""


def cards(records: Sequence[Record], baseline: str) -> list[dict[str, Any]]:
    """One card for each combination of dtypes and target: each provider's geometric mean over the
    operations that all of them measured, and the top speed.

    Speeds are relative to `baseline` if it measured all of these operations, otherwise to the
    fastest provider.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.gflops is not None:
            operation, _ = split_dispatch_name(record.operation)
            key = (dtype_label(operation.signature), record.target)
            groups.setdefault(key, []).append(record)
    several = len({target for _, target in groups}) > 1
    return [
        _card(dtypes + (f" · {target}" if several else ""), group, baseline)
        for (dtypes, target), group in groups.items()
    ]


def _card(label: str, group: Sequence[Record], baseline: str) -> dict[str, Any]:
    problems = group_by_problem(group)
    bests = {problem: fastest_per_provider(rows) for problem, rows in problems.items()}
    compared, shared = _like_with_like(bests)
    reference = {
        problem: fastest(r for r in problems[problem] if is_of_baseline(r, baseline))
        for problem in shared
    }
    means = {
        provider: geometric_mean(1 / _ns(bests[problem][provider]) for problem in shared) or 0.0
        for provider in compared
    }
    base, against = max(means.values(), default=1.0), ""
    if baseline and all(reference.values()):
        base = geometric_mean(1 / _ns(record) for record in reference.values() if record) or base
        against = baseline
    most = max(means.values(), default=1.0)
    everywhere = {provider for found in bests.values() for provider in found}
    return {
        "label": label,
        "operations": len(shared),
        "against": against,
        "rows": [
            {"provider": provider, "ratio": format_ratio(mean / base), "share": mean / most}
            for provider, mean in sorted(means.items(), key=lambda item: -item[1])
        ] if len(compared) > 1 else [],
        "left_out": sorted(everywhere - set(compared)),
        "top": _top(group),
    }  # fmt: skip


def _like_with_like(
    bests: Mapping[Problem, Mapping[str, Record]],
) -> tuple[list[str], list[Problem]]:
    """The providers that can be compared, and the problems that all of them measured."""
    solved: dict[str, set[Problem]] = {}
    for problem, found in bests.items():
        for provider in found:
            solved.setdefault(provider, set()).add(problem)
    providers = sorted(solved, key=lambda name: (-len(solved[name]), name))
    while True:
        shared = set.intersection(*(solved[name] for name in providers))
        if len(providers) == 1 or len(shared) >= LEAST_SHARED * len(solved[providers[0]]):
            return providers, [problem for problem in bests if problem in shared]
        providers.pop()


def _top(group: Sequence[Record]) -> str:
    best = max(group, key=lambda record: record.gflops or 0.0)
    operation, _ = split_dispatch_name(best.operation)
    roof = best.roofline_fraction
    share = f", {roof:.0%} of the roofline" if roof is not None else ""
    return f"top {format_gflops(best.gflops)}{share}: {best.provider} {shape_label(operation)}"


def _ns(record: Record) -> float:
    assert record.measurement is not None
    return record.measurement.median_ns
