"""One self-contained HTML file that works offline: table, plots, failures, samples, environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from markupsafe import Markup

from gemmetry.analysis.dispatches.baseline import (
    MeanSpeedup,
    Speedups,
    baseline_label,
    default_baseline,
    fastest,
    group_by_problem,
    grouped_by_speed,
    problem_of,
    rank,
)
from gemmetry.analysis.dispatches.leader import find_leader
from gemmetry.analysis.dispatches.marks import RunMarks, find_run_marks, relative_half_width
from gemmetry.analysis.dispatches.within import judged_speedups
from gemmetry.domain import units
from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.record import Record, ResultSet
from gemmetry.reports.dispatches.cards import cards
from gemmetry.reports.dispatches.failures import (
    NOT_RUN,
    FailureGroup,
    group_failures,
    ran_and_failed,
)
from gemmetry.reports.dispatches.figures import figures_of
from gemmetry.reports.dispatches.records import record_table
from gemmetry.reports.dispatches.verdict_line import run_state_lines, verdict_line
from gemmetry.reports.dispatches.why import why_line
from gemmetry.reports.extras import require
from gemmetry.reports.labels import (
    VERIFICATION_MARKS,
    difference_legend,
    difference_sign,
    dtype_label,
    failed_checks,
    format_half_width,
    format_ratio,
    noted_checks,
    operation_label,
    operation_title,
    outcome_counts,
    unapplied_checks,
)
from gemmetry.reports.pages import embed_json, page_templates, template_text
from gemmetry.reports.palette import COLOURS, DARK_COLOURS, SCALE, provider_places
from gemmetry.reports.tables.json import json_value
from gemmetry.reports.texts import first_line, printable

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
    plotly = require("plotly.offline", extra="plot")
    templates = page_templates()
    records = result_set.records
    name = baseline or default_baseline(records)
    relative = judged_speedups(result_set, name) if name else None
    marks = find_run_marks(records)
    leader = find_leader(result_set, marks)
    shown = _shown(records)
    return templates.get_template("report.html.j2").render(
        result_set=result_set,
        hidden=len(records) - len(shown),
        verdict=verdict_line(records, leader, marks),
        cards=cards(records, name or ""),
        counts=outcome_counts(records),
        means=_means(relative),
        run_states=run_state_lines(marks, result_set.remarks),
        noisy=sum(bool(marks.of(record)) for record in records),
        noisy_kinds=[f"{n} {printable(kind)}" for kind, n in marks.counts(records).items()],
        unapplied=unapplied_checks(records),
        incomplete=noted_checks(records, "incomplete"),
        properties=noted_checks(records, "property"),
        difference_legend=difference_legend(relative.verdicts.values() if relative else ()),
        failures=[_failure(group) for group in group_failures(records)],
        failed=sum(map(ran_and_failed, records)),
        not_run=_not_run(records),
        environments={key: asdict(env) for key, env in result_set.environments.items()},
        style=Markup(template_text(templates, "report.css")),
        scripts=[Markup(template_text(templates, script)) for script in _SCRIPTS],
        plotly=Markup(plotly.get_plotlyjs()),
        data=Markup(embed_json(_data(result_set, shown, relative, marks))),
        baseline=baseline_label(records, name) if name else "",
    )


def render_notebook_table(result_set: ResultSet) -> str:
    """A small table for a notebook's cell, without scripts: one sentence with the fastest, then
    the dispatches, with the fastest of each operation in bold."""
    records = result_set.records
    marks = find_run_marks(records)
    rows: list[dict[str, Any]] = []
    for group in group_by_problem(records).values():
        best = fastest(group)
        rows.extend(
            _notebook_row(record, record is best, marks) for record in sorted(group, key=rank)
        )
    return (
        page_templates()
        .get_template("notebook.html.j2")
        .render(
            title=result_set.title,
            verdict=verdict_line(records, find_leader(result_set, marks), marks),
            counts=outcome_counts(records),
            rows=rows[:_NOTEBOOK_ROWS],
            hidden=max(0, len(rows) - _NOTEBOOK_ROWS),
        )
    )


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
    return {
        "columns": [
            {"name": column.name, "unit": column.unit, "description": column.description}
            for column in COLUMNS
        ],
        "rows": json_value(record_table(records, has_tags=False).rows),
        "derived": [
            _derived(record, bests[problem_of(record)], relative, marks) for record in records
        ],
        "baseline": relative.baseline if relative else "",
        "palette": {
            "light": COLOURS,
            "dark": DARK_COLOURS,
            "scale": SCALE,
            "places": provider_places(record.provider for record in records),
        },
        "figures": json_value(
            figures_of(records, result_set.samples, baseline=relative.baseline if relative else "")
        ),
    }


def _derived(
    record: Record, best: Record | None, relative: Speedups | None, marks: RunMarks
) -> dict[str, Any]:
    """Values that the table shows and the stored columns do not hold."""
    operation, _ = split_dispatch_name(record.operation)
    m = record.measurement
    ratio = relative.of(record) if relative else None
    return {
        "shape": operation_label(operation),
        "dtypes": dtype_label(operation.signature),
        "best": record is best,
        "marks": list(marks.of(record)),
        "because": why_line(record, best),
        "half": relative_half_width(m) if m else None,
        "ratio": ratio,
        "difference": str(relative.difference(record) or "") if relative else "",
        "sign": difference_sign(relative.difference(record)) if relative else "",
        "tail": printable(record.output_tail),
        "why": record.verdict.reason,
    }


def _means(relative: Speedups | None) -> list[dict[str, Any]]:
    if relative is None:
        return []
    return [
        {"provider": provider, "ratio": format_ratio(mean.ratio), "problems": mean.problems,
         "marked": mean.marked, "verdict": _verdict(mean)}
        for provider, mean in sorted(relative.means.items(), key=lambda item: -item[1].ratio)
    ]  # fmt: skip


def _verdict(mean: MeanSpeedup) -> str:
    """``faster``, ``slower``, or ``noisy`` if the mean includes marked measurements."""
    if mean.marked:
        return "noisy"
    return "faster" if mean.ratio >= 1 else "slower"


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


def _failure(group: FailureGroup) -> dict[str, Any]:
    record = group.first
    operation, _ = split_dispatch_name(record.operation)
    return {
        "outcome": str(record.outcome),
        "stage": str(record.stage or ""),
        "name": f"{record.provider}:{record.dispatch}",
        "title": operation_title(operation),
        "reason": printable(record.reason),
        "first_bad": record.verdict.first_bad or "",
        "checks": failed_checks(record.verdict),
        "error_map": [printable(line) for line in record.verdict.error_map],
        "evidence": record.verdict.evidence_path or "",
        "first": first_line(record.reason),
        "tail": printable(record.output_tail),
        "reproduce": record.reproduce,
        "others": [
            {"name": f"{other.provider}:{other.dispatch}", "reason": first_line(other.reason)}
            for other in group.records[1:]
        ],
    }


def _notebook_row(record: Record, is_best: bool, marks: RunMarks) -> dict[str, Any]:
    operation, _ = split_dispatch_name(record.operation)
    m = record.measurement
    return {
        "best": is_best,
        "operation": operation_title(operation),
        "provider": record.provider,
        "configuration": record.configuration,
        "time": ""
        if m is None
        else f"{units.format_ns(m.median_ns, even=True)} {format_half_width(m)}"
        + ("!" if marks.of(record) else ""),
        "speed": units.format_gflops(record.gflops),
        "mark": VERIFICATION_MARKS[record.verdict.status],
        "outcome": str(record.outcome),
        "reason": first_line(record.reason),
    }
