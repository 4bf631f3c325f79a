"""One self-contained HTML file: table, plots, failures, samples and environment, offline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from markupsafe import Markup

from gemmetry.analysis.baseline import (
    MeanSpeedup,
    Speedups,
    default_baseline,
    duration_ns,
    fastest,
    group_by_problem,
)
from gemmetry.analysis.within import judged_speedups
from gemmetry.domain import units
from gemmetry.domain.columns import COLUMNS, row
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.outcome import Outcome
from gemmetry.domain.record import Record
from gemmetry.domain.resultset import ResultSet
from gemmetry.reports.extras import require
from gemmetry.reports.figures import figures_of
from gemmetry.reports.files import write_atomically
from gemmetry.reports.json_document import json_value
from gemmetry.reports.labels import (
    VERIFICATION_MARKS,
    dtype_label,
    failed_checks,
    format_half_width,
    format_ratio,
    half_width,
    mark_counts,
    operation_label,
    operation_title,
    outcome_counts,
    shape_label,
)
from gemmetry.reports.pages import embed_json, page_templates, template_text
from gemmetry.reports.texts import first_line, printable
from gemmetry.statistics.comparison import Difference

_NOTEBOOK_ROWS = 50
_NOT_RUN = (Outcome.UNSUPPORTED, Outcome.SKIPPED)
_SCRIPTS = ("format.js", "table.js", "plots.js", "report.js")


def write_html(result_set: ResultSet, path: Path, *, baseline: str | None = None) -> None:
    """Write :func:`render_html` to `path`, whole or not at all.

    Raises:
        RequestError: plotly is not installed. UnknownNameError: no such baseline provider.
        StorageError: the file cannot be written.
    """
    write_atomically(path, render_html(result_set, baseline=baseline).encode())


def render_html(result_set: ResultSet, *, baseline: str | None = None) -> str:
    """The report as one HTML document that asks the network for nothing.

    `baseline` is the provider that speeds are held against (default: torch or numpy, if one was
    measured beside others).

    Raises:
        RequestError: plotly is not installed. UnknownNameError: no such baseline provider.
    """
    plotly = require("plotly.offline", extra="plot")
    templates = page_templates()
    records = result_set.records
    name = baseline or default_baseline(records)
    relative = judged_speedups(result_set, name) if name else None
    noisy = [r for r in records if r.measurement is not None and r.measurement.marks]
    return templates.get_template("report.html.j2").render(
        result_set=result_set,
        tiles=_tiles(records),
        counts=outcome_counts(records),
        means=_means(relative),
        noisy=len(noisy),
        noisy_kinds=[f"{count} {printable(kind)}" for kind, count in mark_counts(noisy).items()],
        has_undecided=relative is not None and Difference.NONE_SHOWN in relative.verdicts.values(),
        failures=[_failure(record) for record in records if _ran_and_failed(record)],
        not_run=_not_run(records),
        environments={key: asdict(env) for key, env in result_set.environments.items()},
        style=Markup(template_text(templates, "report.css")),
        scripts=[Markup(template_text(templates, script)) for script in _SCRIPTS],
        plotly=Markup(plotly.get_plotlyjs()),
        data=Markup(embed_json(_data(result_set, relative))),
        baseline=name or "",
    )


def render_notebook_table(result_set: ResultSet) -> str:
    """A small table for a notebook's cell, without scripts; the fastest of each operation bold."""
    records = result_set.records
    rows: list[dict[str, Any]] = []
    for group in group_by_problem(records).values():
        best = fastest(group)
        rows.extend(_notebook_row(record, record is best) for record in sorted(group, key=_rank))
    return (
        page_templates()
        .get_template("notebook.html.j2")
        .render(
            title=result_set.title,
            counts=outcome_counts(records),
            rows=rows[:_NOTEBOOK_ROWS],
            hidden=max(0, len(rows) - _NOTEBOOK_ROWS),
        )
    )


def _data(result_set: ResultSet, relative: Speedups | None) -> dict[str, Any]:
    records = _grouped(result_set.records)
    bests = {id(fastest(group)) for group in group_by_problem(records).values()}
    return {
        "columns": [
            {"name": column.name, "unit": column.unit, "description": column.description}
            for column in COLUMNS
        ],
        "rows": [[json_value(value) for value in row(record).values()] for record in records],
        "derived": [_derived(record, id(record) in bests, relative) for record in records],
        "baseline": relative.baseline if relative else "",
        "figures": json_value(
            figures_of(records, result_set.samples, baseline=relative.baseline if relative else "")
        ),
    }


def _grouped(records: Sequence[Record]) -> list[Record]:
    """The dispatches of a problem together, the fastest first, those without a time last."""
    groups = group_by_problem(records).values()
    return [record for group in groups for record in sorted(group, key=_rank)]


def _rank(record: Record) -> float:
    ns = duration_ns(record)
    return math.inf if ns is None else ns


def _derived(record: Record, is_best: bool, relative: Speedups | None) -> dict[str, Any]:
    """What the table shows and the stored columns do not hold."""
    operation, _ = split_dispatch_name(record.operation)
    m = record.measurement
    ratio = relative.of(record) if relative else None
    return {
        "shape": operation_label(operation),
        "dtypes": dtype_label(operation.signature),
        "best": is_best,
        "half": half_width(m) if m else None,
        "ratio": ratio,
        "difference": str(relative.difference(record) or "") if relative else "",
        "undecided": relative is not None and relative.difference(record) is Difference.NONE_SHOWN,
        "tail": printable(record.output_tail),
        "why": record.verdict.reason,
    }


def _tiles(records: Sequence[Record]) -> list[dict[str, str]]:
    """The fastest dispatch of each dtypes and target, fastest first."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.gflops is not None:
            operation, _ = split_dispatch_name(record.operation)
            key = (dtype_label(operation.signature), record.target)
            groups.setdefault(key, []).append(record)
    tiles = []
    for (dtypes, target), group in groups.items():
        best = max(group, key=lambda record: record.gflops or 0.0)
        operation, _ = split_dispatch_name(best.operation)
        roof = best.roofline_fraction
        tiles.append((best.gflops or 0.0, {
            "label": f"best {dtypes}" + (f" · {target}" if target != "cpu" else ""),
            "value": units.format_gflops(best.gflops),
            "detail": f"{best.provider} · {shape_label(operation)}",
            "note": f"{roof:.0%} of the roofline" if roof is not None else "",
        }))  # fmt: skip
    return [tile for _, tile in sorted(tiles, key=lambda item: -item[0])]


def _means(relative: Speedups | None) -> list[dict[str, Any]]:
    if relative is None:
        return []
    return [
        {"provider": provider, "ratio": format_ratio(mean.ratio), "problems": mean.problems,
         "marked": mean.marked, "verdict": _verdict(mean)}
        for provider, mean in sorted(relative.means.items(), key=lambda item: -item[1].ratio)
    ]  # fmt: skip


def _verdict(mean: MeanSpeedup) -> str:
    """``faster``, ``slower``, or ``noisy`` where marked measurements are in the mean."""
    if mean.marked:
        return "noisy"
    return "faster" if mean.ratio >= 1 else "slower"


def _ran_and_failed(record: Record) -> bool:
    return record.outcome not in (Outcome.OK, *_NOT_RUN)


def _not_run(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Unsupported and skipped dispatches counted by reason: a sweep can have thousands."""
    counts = Counter(
        (str(record.outcome), record.provider, first_line(record.reason))
        for record in records
        if record.outcome in _NOT_RUN
    )
    return [
        {"outcome": outcome, "provider": provider, "reason": reason, "count": count}
        for (outcome, provider, reason), count in counts.most_common()
    ]


def _failure(record: Record) -> dict[str, Any]:
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
    }


def _notebook_row(record: Record, is_best: bool) -> dict[str, Any]:
    operation, _ = split_dispatch_name(record.operation)
    m = record.measurement
    return {
        "best": is_best,
        "operation": operation_title(operation),
        "provider": record.provider,
        "configuration": record.configuration,
        "time": ""
        if m is None
        else f"{units.format_ns(m.median_ns)} {format_half_width(m)}{'!' if m.marks else ''}",
        "speed": units.format_gflops(record.gflops),
        "mark": VERIFICATION_MARKS[record.verdict.status],
        "outcome": str(record.outcome),
        "reason": first_line(record.reason),
    }
