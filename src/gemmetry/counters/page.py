"""Diagnoses and comparisons of hardware counters as one HTML file that works offline.

Names of kernels come from reports of any origin: the template escapes them, and plotly's texts are
escaped where they are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gemmetry.counters.comparison import STALL_SHARE, CounterComparison, KernelComparison
from gemmetry.counters.diagnosis.document import ChecklistItem
from gemmetry.counters.diagnosis.model import LaunchDiagnosis
from gemmetry.counters.diagnosis.stalls import MEANINGS
from gemmetry.counters.figures import Side, compared_sides, roofline_figure
from gemmetry.counters.text import (
    DiagnosedLaunch,
    amount_text,
    change_text,
    finding_parts,
    measured_text,
    speedup_text,
    value_text,
)
from gemmetry.domain.tables import Column, Table
from gemmetry.hardware.detect import own_version
from gemmetry.results.pages import Figure, page_section, rendered_page, text_of
from gemmetry.results.texts import cut

_FILE = "the JSON document"
_ABOUT = (
    "A launch has a point for each level of memory, in its colour and at the operations per byte "
    "of that level. Slopes are bandwidths, the upper lines the peak of the datasheet and that at "
    "the clock of the launch. A point on the slope of its own level means that this memory limits "
    "the launch."
)
_MOST_STALLS = 8
_STALL_AXIS = "% of the time of the warps"


def diagnosis_page(launches: Sequence[DiagnosedLaunch], problems: Sequence[str]) -> str:
    """The page of ``gemmetry counters diagnose -o x.html``.

    Raises:
        RequestError: plotly is not installed.
    """
    sections = []
    for number, one in enumerate(launches):
        found = one.diagnosis
        sides = [] if one.roofline is None else [Side("", found.device, one.roofline)]
        sections.append(page_section(
            f"kernel-{number}", cut(found.kernel, 30), cut(found.kernel), _ABOUT,
            [("Roofline", roofline_figure(sides)), ("What warps wait for", stall_figure(one))],
            _diagnosis_tables(number, one), _FILE, fluid=True,
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
        rows = [[change.metric, value_text(change.first, change.unit),
                 value_text(change.second, change.unit), change_text(change), change.verdict,
                 change.note] for change in one.metrics]  # fmt: skip
        heads = ("metric", first, one.label, "change", "verdict", "note")
        columns = tuple(
            Column("note" if head == "note" else f"column {n}", heading=cut(head))
            for n, head in enumerate(heads)
        )
        sections.append(page_section(
            f"kernel-{number}", cut(one.first.name, 30), title, _ABOUT,
            [("Both on one roofline", roofline_figure(compared_sides(first, one))),
             ("Shares of the stalls", compared_stalls(first, one))],
            [("Metrics", Table(f"changes {number}", columns, rows))], _FILE, fluid=True,
        ))  # fmt: skip
    sections.append(_unmatched(found))
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

    tables = [
        table("Findings", ("id", "part", "text"),
              [(one.id, part, text) for one in found.findings for part, text in (
                  ("claim", f"{one.claim} ({one.confidence} confidence)"), *finding_parts(one))]),
        table("Suppressed", ("id", "claim", "reason"),
              [(void.id, void.claim, void.reason) for void in found.suppressed]),
        table("Work", ("quantity", "measured", "expected", "check", "reason"),
              [(check.quantity, amount_text(check, check.measured),
                amount_text(check, check.expected), check.verdict, check.reason)
               for check in found.work_check]),
    ]  # fmt: skip
    if one.checklists is not None:
        heads = ("item", "measured", "target", "answer", "remark")
        tables += [
            table("The document's checklist", heads, _items(one.checklists.checklist)),
            table("What the document expects", heads, _items(one.checklists.insights)),
            table("NVIDIA's rules", ("rule", "text", "speed-up", "remark"),
                  [(rule.rule, rule.title, speedup_text(rule), rule.remark)
                   for rule in one.checklists.rules]),
        ]  # fmt: skip
    return tables


def _items(items: Iterable[ChecklistItem]) -> list[tuple[str, ...]]:
    # A number and its unit stay on one line where the columns are narrow.
    return [
        (one.item, *(text.replace(" ", "\N{NO-BREAK SPACE}")
                     for text in (measured_text(one), one.target)), one.answer, one.remark)
        for one in items
    ]  # fmt: skip


def _unmatched(found: CounterComparison) -> dict[str, Any]:
    """Kernels without a counterpart."""
    columns = (Column("report"), Column("kernel"))
    return page_section(
        "unmatched", "Only in one", "Kernels that only one report has",
        "There is nothing to compare them with; --kernel REGEX selects what is compared.",
        sheets=[("", Table("unmatched", columns, [list(pair) for pair in found.unmatched]))],
        file=_FILE, fluid=True,
    )  # fmt: skip


def stall_figure(one: DiagnosedLaunch) -> Figure | None:
    """The largest stall shares of a launch; None where they are not known."""
    if one.stalls is None or one.stalls.missing:
        return None
    ranked = [(name, share) for name, share in one.stalls.ranked() if share > 0][:_MOST_STALLS]
    names = [name for name, _ in ranked]
    meanings = [f"waiting {MEANINGS[name].meaning}" if name in MEANINGS else "" for name in names]
    bars = _bars("", names, [100 * share for _, share in ranked], meanings)
    return _stall_bars(names, [bars]) if names else None


def compared_stalls(first: str, one: KernelComparison) -> Figure | None:
    """The largest stall shares of both launches, as bars; None where stalls were not counted."""
    stalls = [change for change in one.metrics if change.metric.startswith(STALL_SHARE)]
    names = [change.metric.removeprefix(STALL_SHARE) for change in stalls]
    sides = ((first, [change.first for change in stalls]),
             (one.label, [change.second for change in stalls]))  # fmt: skip
    bars = [_bars(label, names, values, tint=3 + n) for n, (label, values) in enumerate(sides)]
    return _stall_bars(names, bars) if names else None


def _bars(
    label: str, names: Sequence[str], values: Sequence[float | None],
    meanings: Sequence[str] = (), *, tint: int = 3,
) -> dict[str, Any]:  # fmt: skip
    return {
        "type": "bar", "orientation": "h", "name": text_of(label), "tint": tint, "y": list(names),
        "x": list(values), "customdata": list(meanings), "showlegend": bool(label),
        "hovertemplate": f"%{{y}}: %{{x:.1f}} %{'<br>%{customdata}' if meanings else ''}"
        "<extra></extra>",
    }  # fmt: skip


def _stall_bars(names: Sequence[str], traces: list[dict[str, Any]]) -> Figure:
    return {
        "traces": traces,
        "layout": {"barmode": "group", "yaxis": {"autorange": "reversed"},
                   "xaxis": {"title": _STALL_AXIS, "rangemode": "tozero"}},
        "height": 120 + (20 + 15 * len(traces)) * len(names), "wide": True,
    }  # fmt: skip
