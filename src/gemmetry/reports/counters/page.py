"""Diagnoses and comparisons of hardware counters as one HTML file that works offline.

Names of kernels come from reports of any origin: the template escapes them, and plotly's texts are
escaped where they are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmetry.analysis.counters.comparison import STALL_SHARE, CounterComparison, KernelComparison
from gemmetry.counters.diagnosis.model import Finding, LaunchDiagnosis
from gemmetry.counters.roofline import LaunchRoofline
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.hardware.environment import own_version
from gemmetry.reports.counters.comparison_text import change_text, value_text
from gemmetry.reports.counters.text import DiagnosedLaunch, evidence_text
from gemmetry.reports.sweeps.figures import Figure, text_of
from gemmetry.reports.sweeps.page import page_section, rendered_page
from gemmetry.reports.texts import cut

_FILE = "the JSON document"
_ABOUT = (
    "A launch has a point for each level of memory, at the operations per byte of that level. "
    "Slopes are bandwidths, the upper lines the peak of the datasheet and that at the clock of the "
    "launch. A point on the slope of its own level means that this memory limits the launch."
)

Side = tuple[str, LaunchRoofline]


def diagnosis_page(launches: Sequence[DiagnosedLaunch], problems: Sequence[str]) -> str:
    """The page of ``gemmetry counters diagnose -o x.html``.

    Raises:
        RequestError: plotly is not installed.
    """
    sections = []
    for number, one in enumerate(launches):
        found = one.diagnosis
        sides = [] if one.roofline is None else [("", one.roofline)]
        sections.append(page_section(
            f"kernel-{number}", cut(found.kernel, 30), cut(found.kernel), _ABOUT,
            [("Roofline", roofline_figure(sides))], _diagnosis_tables(number, one), _FILE,
        ))  # fmt: skip
    return rendered_page(
        title="Diagnosis of hardware counters",
        identity=[*sorted({one.diagnosis.device for one in launches if one.diagnosis.device}),
                  f"gemmetry {own_version()}"],
        groups=[{"heading": cut(one.diagnosis.kernel, 90), "minor": False,
                 "items": [("Verdict", _sentence(one.diagnosis))]} for one in launches],
        problems=problems,
        sections=sections,
    )  # fmt: skip


def comparison_page(found: CounterComparison, problems: Sequence[str]) -> str:
    """The page of ``gemmetry counters compare -o x.html``.

    Raises:
        RequestError: plotly is not installed.
    """
    first = found.reports[0].label
    sections, groups = [], []
    for number, one in enumerate(found.kernels):
        labelled = ((first, one.first), (one.label, one.second))
        title = cut(one.first.name, 60)
        items = [(label, _sentence(side.diagnosis)) for label, side in labelled]
        items += [(word, ", ".join(ids)) for word, ids in
                  (("Gone", one.gone), ("New", one.new), ("Note", [one.note] if one.note else []))
                  if ids]  # fmt: skip
        groups.append({"heading": f"{title}: {first} and {one.label}", "minor": False,
                       "items": items})  # fmt: skip
        sides = [(label, side.roofline) for label, side in labelled if side.roofline is not None]
        rows = [[change.metric, value_text(change.first, change.unit),
                 value_text(change.second, change.unit), change_text(change), change.verdict,
                 change.note] for change in one.metrics]  # fmt: skip
        heads = ("metric", first, one.label, "change", "verdict", "note")
        columns = tuple(Column(f"column {n}", heading=cut(head)) for n, head in enumerate(heads))
        sections.append(page_section(
            f"kernel-{number}", cut(one.first.name, 30), title, _ABOUT,
            [("Both on one roofline", roofline_figure(sides)),
             ("Shares of the stalls", stall_figure(first, one))],
            [("Metrics", Table(f"changes {number}", columns, rows))], _FILE,
        ))  # fmt: skip
    return rendered_page(
        title=" · ".join(one.label for one in found.reports),
        identity=[*(f"{one.label} = {cut(one.source)}" for one in found.reports),
                  f"gemmetry {own_version()}"],
        groups=groups, problems=problems, sections=sections,
    )  # fmt: skip


def _sentence(found: LaunchDiagnosis) -> str:
    verdict = found.verdict
    return f"{verdict.claim}. ({verdict.id}, {verdict.confidence} confidence)"


def _diagnosis_tables(number: int, one: DiagnosedLaunch) -> list[tuple[str, Table]]:
    found = one.diagnosis

    def table(name: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[str, Table]:
        columns = tuple(Column(head) for head in heads)
        return name, Table(f"{name} {number}", columns, rows)

    checks = [
        (one.quantity, one.measured, one.expected, one.verdict, one.reason)
        for one in found.work_check
    ]
    numbers = ("measured", "expected")
    work = Table(f"work {number}", tuple(
        Column(head, ColumnType.NUMBER if head in numbers else ColumnType.TEXT)
        for head in ("quantity", "measured", "expected", "check", "reason")
    ), checks)  # fmt: skip
    tables = [
        table("Findings", ("id", "part", "text"),
              [(one.id, part, text) for one in found.findings for part, text in _parts(one)]),
        table("Suppressed", ("id", "claim", "reason"),
              [(void.id, void.claim, void.reason) for void in found.suppressed]),
        ("Work", work),
    ]  # fmt: skip
    if one.checklists is not None:
        tables.append(table(
            "The document's checklist", ("item", "measured", "target", "answer", "remark"),
            [(item.item, None if item.measured is None else f"{item.measured:.3g} {item.unit}",
              item.target, item.answer, item.remark) for item in one.checklists.checklist],
        ))  # fmt: skip
    return tables


def _parts(finding: Finding) -> list[tuple[str, str]]:
    parts = [
        ("claim", f"{finding.claim} ({finding.confidence} confidence)"),
        *(("evidence", evidence_text(one)) for one in finding.evidence),
        ("threshold", finding.threshold), ("its source", finding.threshold_source),
        ("against", finding.against), ("remedy", finding.remedy),
        ("ceiling", finding.ceiling), ("collect", finding.collect),
    ]  # fmt: skip
    return [(part, text) for part, text in parts if text]


def roofline_figure(sides: Sequence[Side]) -> Figure | None:
    """Launches on one roofline: levels of memory as slopes, peaks of arithmetic as ceilings; None
    where no operations were counted."""
    known = [(label, one) for label, one in sides if one.operations_per_s]
    places = [level.intensity for _, one in known for level in one.levels if level.intensity]
    if not places:
        return None
    peaks = [p for _, one in known for p in (one.datasheet_peak, one.clock_peak) if p]
    slopes = [level.peak_bytes_per_s for _, one in known for level in one.levels
              if level.peak_bytes_per_s]  # fmt: skip
    ridges = [max(peaks) / slope for slope in slopes] if peaks else []
    low, high = min(places) / 4, max([*places, *ridges]) * 4
    traces: list[dict[str, Any]] = []
    for label, one in known:
        prefix = f"{text_of(label)}: " if label else ""
        peak = one.datasheet_peak or one.clock_peak
        for tint, level in enumerate(one.levels):
            if level.peak_bytes_per_s and (label, one) == known[0]:
                end = min(high, peak / level.peak_bytes_per_s) if peak else high
                traces.append(_line(level.name, tint, level.peak_bytes_per_s, (low, end)))
        for words, roof in (("datasheet", one.datasheet_peak), ("at its clock", one.clock_peak)):
            if roof and not (words == "datasheet" and (label, one) != known[0]):
                traces.append({"type": "scatter", "mode": "lines", "ink": True, "x": [low, high],
                               "y": [roof / 1e12] * 2, "name": f"{prefix}{words}"})  # fmt: skip
        traces.append({
            "type": "scatter", "mode": "markers", "tint": 3 + known.index((label, one)),
            "name": f"{prefix}{text_of(one.path or 'operations')}",
            "x": [level.intensity for level in one.levels],
            "y": [(one.operations_per_s or 0) / 1e12] * len(one.levels),
            "text": [level.name for level in one.levels], "marker": {"size": 10},
            "hovertemplate": "%{text}<br>%{x:.3g} FLOP/byte, %{y:.3g} TFLOP/s<extra></extra>",
        })  # fmt: skip
    return {
        "traces": traces,
        "layout": {"xaxis": {"title": "FLOP per byte", "type": "log"},
                   "yaxis": {"title": "TFLOP/s", "type": "log"}},
        "height": 460, "narrow_legend": True, "wide": True,
    }  # fmt: skip


def _line(name: str, tint: int, slope: float, ends: tuple[float, float]) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": f"{name}, {slope / 1e12:.3g} TB/s",
        "tint": tint, "x": list(ends), "y": [slope * x / 1e12 for x in ends],
    }  # fmt: skip


def stall_figure(first: str, one: KernelComparison) -> Figure | None:
    """The largest stall shares of both launches, as bars; None where stalls were not counted."""
    stalls = [change for change in one.metrics if change.metric.startswith(STALL_SHARE)]
    if not stalls:
        return None
    names = [change.metric.removeprefix(STALL_SHARE) for change in stalls]
    sides = ((first, [change.first for change in stalls]),
             (one.label, [change.second for change in stalls]))  # fmt: skip
    return {
        "traces": [
            {"type": "bar", "orientation": "h", "name": text_of(label), "tint": 3 + place,
             "y": names, "x": values, "hovertemplate": "%{y}: %{x:.1f} %<extra></extra>"}
            for place, (label, values) in enumerate(sides)
        ],
        "layout": {"barmode": "group", "yaxis": {"autorange": "reversed"},
                   "xaxis": {"title": "% of the time between two instructions of a warp"}},
        "height": 120 + 50 * len(names), "wide": True,
    }  # fmt: skip
