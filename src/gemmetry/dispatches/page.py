"""The cards at the top of a page: providers compared on the same operations.

One self-contained HTML file that works offline: table, plots, failures, samples, environment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gemmetry.dispatches.analysis import (
    Problem,
    RunMarks,
    Speedups,
    fastest,
    fastest_per_provider,
    geometric_mean,
    group_by_problem,
    grouped_by_speed,
    is_of_baseline,
    problem_of,
    rank,
    relative_half_width,
)
from gemmetry.dispatches.figures import by_dtypes, figures_of, provider_places
from gemmetry.dispatches.labels import (
    NOT_RUN,
    UNAPPLIED,
    VERIFICATION_MARKS,
    Overview,
    difference_legend,
    difference_sign,
    dtype_label,
    failed_checks,
    format_ratio,
    noted_checks,
    operation_label,
    operation_title,
    outcome_counts,
    ran_and_failed,
    shape_label,
)
from gemmetry.dispatches.labels import half_width_label as format_half_width
from gemmetry.dispatches.results import record_table
from gemmetry.dispatches.show import why_line
from gemmetry.dispatches.terminal import group_failures
from gemmetry.domain import units
from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.rows import value as json_value
from gemmetry.domain.units import format_gflops
from gemmetry.results.pages import page_templates, render_page
from gemmetry.results.palette import COLOURS, DARK_COLOURS, SCALE
from gemmetry.results.texts import first_line, printable

LEAST_SHARED = 0.5
"""Share of the most complete provider's operations that every compared provider must have measured.
A provider with fewer is left out and named, so that one crash does not empty the comparison."""


def cards(records: Sequence[Record], baseline: str) -> list[dict[str, Any]]:
    """One card for each combination of dtypes and target: each provider's geometric mean over the
    operations that all of them measured, and the top speed.

    Speeds are relative to `baseline` if it measured all of these operations, otherwise to the
    fastest provider.
    """
    groups = by_dtypes(records)
    several = len({target for target, _ in groups}) > 1
    return [
        _card(dtypes + (f" · {target}" if several else ""), group, baseline)
        for (target, dtypes), group in groups.items()
    ]


def _card(label: str, group: Sequence[Record], baseline: str) -> dict[str, Any]:
    problems = group_by_problem(group)
    bests = {problem: fastest_per_provider(rows) for problem, rows in problems.items()}
    compared, shared = _like_with_like(bests)
    reference = [fastest(r for r in problems[problem] if is_of_baseline(r, baseline))
                 for problem in shared]  # fmt: skip
    means = {
        provider: geometric_mean(1 / rank(bests[problem][provider]) for problem in shared) or 0.0
        for provider in compared
    }
    most = base = max(means.values(), default=1.0)
    against = baseline if all(reference) else ""
    if against:
        base = geometric_mean(1 / rank(record) for record in reference if record) or base
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
    roof = best.roofline_fraction
    share = f", {roof:.0%} of the roofline" if roof is not None else ""
    shape = shape_label(parse_operation(best.operation))
    return f"top {format_gflops(best.gflops)}{share}: {best.provider} {shape}"


_NOTEBOOK_ROWS = 50
_MOST_ROWS = 10_000
"""A row takes about 3 KB: a page of 100,000 was 323 MB, which browsers do not open."""
_SCRIPTS = ("format.js", "table.js", "plots.js", "report.js")


def render_html(result_set: ResultSet, *, baseline: str | None = None) -> str:
    """The report as one HTML document that loads nothing from the network.

    `baseline` is the provider to which speeds are relative (default: torch or numpy, if one was
    measured along with others).

    Raises:
        RequestError: plotly is not installed. UnknownNameError: no such baseline provider.
    """
    records = result_set.records
    overview = Overview(result_set, baseline)
    relative = overview.relative
    shown = _shown(records)
    return render_page(
        "report.html.j2",
        scripts=_SCRIPTS,
        data=_data(result_set, shown, relative, overview.marks),
        draws=True,
        title=result_set.title,
        result_set=result_set,
        hidden=len(records) - len(shown),
        verdict=overview.verdict,
        cards=cards(records, overview.baseline),
        counts=outcome_counts(records),
        means=_means(relative),
        run_states=overview.run_states,
        noisy=sum(bool(overview.marks.of(record)) for record in records),
        noisy_kinds=[f"{n} {printable(kind)}" for kind, n in overview.kinds.items()],
        unapplied=noted_checks(records, UNAPPLIED),
        incomplete=noted_checks(records, "incomplete"),
        properties=noted_checks(records, "property"),
        difference_legend=difference_legend(relative.verdicts.values() if relative else ()),
        failures=[_failure(group) for group in group_failures(records)],
        failed=sum(map(ran_and_failed, records)),
        not_run=_not_run(records),
        environments={key: asdict(env) for key, env in result_set.environments.items()},
        baseline=overview.baseline_label,
    )


def render_notebook_table(result_set: ResultSet) -> str:
    """A small table for a notebook's cell, without scripts: one sentence with the fastest, then
    the dispatches, with the fastest of each operation in bold."""
    records, overview = result_set.records, Overview(result_set)
    bests = [fastest(group) for group in group_by_problem(records).values()]
    return page_templates().get_template("notebook.html.j2").render(
        title=result_set.title,
        verdict=overview.verdict,
        counts=outcome_counts(records),
        rows=[_notebook_row(record, any(record is best for best in bests), overview.marks)
              for record in grouped_by_speed(records)[:_NOTEBOOK_ROWS]],
        hidden=max(0, len(records) - _NOTEBOOK_ROWS),
    )  # fmt: skip


def _shown(records: Sequence[Record]) -> list[Record]:
    """The records of the table and the figures, grouped by speed: all, or as many of the fastest of
    each problem as fit on a page."""
    if len(records) <= _MOST_ROWS:
        return grouped_by_speed(records)
    groups = [sorted(group, key=rank) for group in group_by_problem(records).values()]
    places = sorted((place, number) for number, of in enumerate(groups) for place in range(len(of)))
    depths = Counter(number for _, number in places[:_MOST_ROWS])
    return [record for number, of in enumerate(groups) for record in of[: depths[number]]]


def _data(
    result_set: ResultSet, records: Sequence[Record], relative: Speedups | None, marks: RunMarks
) -> dict[str, Any]:
    bests = {problem: fastest(group) for problem, group in group_by_problem(records).items()}
    baseline = relative.baseline if relative else ""
    return {
        "columns": [{"name": one.name, "unit": one.unit, "description": one.description}
                    for one in COLUMNS],
        "rows": json_value(record_table(records, has_tags=False).rows),
        "derived": [_derived(record, bests[problem_of(record)], relative, marks)
                    for record in records],
        "baseline": baseline,
        "palette": {"light": COLOURS, "dark": DARK_COLOURS, "scale": SCALE,
                    "places": provider_places(record.provider for record in records)},
        "figures": json_value(figures_of(records, result_set.samples, baseline)),
    }  # fmt: skip


def _derived(
    record: Record, best: Record | None, relative: Speedups | None, marks: RunMarks
) -> dict[str, Any]:
    """Values that the table shows and the stored columns do not hold."""
    operation, m = parse_operation(record.operation), record.measurement
    difference = relative.difference(record) if relative else None
    return {
        "shape": operation_label(operation),
        "dtypes": dtype_label(operation.signature),
        "best": record is best,
        "marks": list(marks.of(record)),
        "because": why_line(record, best),
        "half": relative_half_width(m) if m else None,
        "ratio": relative.of(record) if relative else None,
        "difference": str(difference or ""),
        "sign": difference_sign(difference),
        "tail": printable(record.output_tail),
        "why": record.verdict.reason,
    }


def _means(relative: Speedups | None) -> list[dict[str, Any]]:
    """The means, the largest first; those that include marked measurements are ``noisy``."""
    means = sorted(relative.means.items(), key=lambda item: -item[1].ratio) if relative else []
    return [
        {"provider": provider, "ratio": format_ratio(mean.ratio), "problems": mean.problems,
         "marked": mean.marked,
         "verdict": "noisy" if mean.marked else "faster" if mean.ratio >= 1 else "slower"}
        for provider, mean in means
    ]  # fmt: skip


def _not_run(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Unsupported and skipped dispatches counted by reason: a sweep can have thousands."""
    counts = Counter(
        (str(record.outcome), record.provider, first_line(record.reason))
        for record in records
        if record.outcome in NOT_RUN
    )
    return [
        {"outcome": outcome, "provider": provider, "reason": reason, "count": count}
        for (outcome, provider, reason), count in counts.most_common()
    ]


def _failure(group: Sequence[Record]) -> dict[str, Any]:
    record, *others = group
    return {
        "outcome": str(record.outcome),
        "stage": str(record.stage or ""),
        "name": f"{record.provider}:{record.dispatch}",
        "title": operation_title(parse_operation(record.operation)),
        "reason": printable(record.reason),
        "first_bad": record.verdict.first_bad or "",
        "checks": failed_checks(record.verdict),
        "error_map": [printable(line) for line in record.verdict.error_map],
        "evidence": record.verdict.evidence_path or "",
        "first": first_line(record.reason),
        "tail": printable(record.output_tail),
        "reproduce": record.reproduce,
        "others": [{"name": f"{one.provider}:{one.dispatch}", "reason": first_line(one.reason)}
                   for one in others],
    }  # fmt: skip


def _notebook_row(record: Record, is_best: bool, marks: RunMarks) -> dict[str, Any]:
    m, mark = record.measurement, "!" if marks.of(record) else ""
    time = m and f"{units.format_ns(m.median_ns, even=True)} {format_half_width(m)}{mark}"
    return {
        "best": is_best,
        "operation": operation_title(parse_operation(record.operation)),
        "provider": record.provider,
        "configuration": record.configuration,
        "time": time or "",
        "speed": units.format_gflops(record.gflops),
        "mark": VERIFICATION_MARKS[record.verdict.status],
        "outcome": str(record.outcome),
        "reason": first_line(record.reason),
    }
