"""What a terminal shows of a comparison of hardware counters, at most 80 columns wide."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from rich.text import Text

from gemmetry.analysis.counters.comparison import (
    PERCENT,
    CounterComparison,
    KernelComparison,
    MetricChange,
)
from gemmetry.analysis.counters.matching import Variant
from gemmetry.domain.units import counted, format_bytes, format_gflops, format_ns
from gemmetry.reports.counters.text import grid_text
from gemmetry.reports.texts import cut, elide

if TYPE_CHECKING:
    from rich.console import Console

MOST_KERNELS = 10
"""Kernels that are shown on a terminal; the others took less time in the first report."""

_WIDTH = 80
_NAME, _VALUE, _CHANGE = 31, 13, 10


def print_comparison(found: CounterComparison, console: Console) -> None:
    """Print each kernel: both verdicts, findings that came and went, and the metrics."""
    first = found.reports[0].label
    for report in found.reports:
        console.print(Text(f"{report.label} = {elide(cut(report.source, 4000), 70)}"),
                      soft_wrap=True)  # fmt: skip
    shown = sorted(found.kernels, key=lambda one: -_time(one.first))[:MOST_KERNELS]
    for one in shown:
        console.print()
        for line in kernel_lines(first, one):
            console.print(line, soft_wrap=True)
    for label, name in found.unmatched[:MOST_KERNELS]:
        console.print(Text(cut(f"only in {label}: {name}", _WIDTH), "dim"), soft_wrap=True)


def hidden_kernels(found: CounterComparison) -> int:
    """Compared kernels that :func:`print_comparison` leaves out."""
    return max(len(found.kernels) - MOST_KERNELS, 0)


def _time(variant: Variant) -> float:
    return sum(one.duration_ns or 0.0 for one in variant.launches)


def kernel_lines(first: str, one: KernelComparison) -> list[Text]:
    """The lines about one kernel of the report `first` and of another."""
    lines = [Text(elide(cut(one.first.name, 4000), _WIDTH), "bold")]
    if one.second.name != one.first.name:
        lines.append(Text(f"  with {elide(cut(one.second.name, 4000), _WIDTH - 7)}", "bold"))
    for label, side in ((first, one.first), (one.label, one.second)):
        info = side.launches[0].info
        launches = counted(len(side.launches), "launch", "launches")
        where = [info.device or "unknown GPU", launches, grid_text(side.launches[0])]
        lines.append(Text(cut(f"{label}: {', '.join(filter(None, where))}", _WIDTH), "dim"))
    before, after = one.first.diagnosis.verdict, one.second.diagnosis.verdict
    verdict = before.id if before.id == after.id else f"{before.id} → {after.id}"
    lines.append(Text.assemble(("verdict  ", "dim"), (verdict, "bold")))
    for label, found in ((first, before), (one.label, after)):
        claim = f"{label}: {found.claim} ({found.confidence} confidence)"
        text = wrap(cut(claim, 2000), _WIDTH - 9)
        lines.extend(Text(f"         {line}") for line in text)
    for heading, ids in (("gone", one.gone), ("new", one.new)):
        if ids:
            lines.append(Text.assemble((f"{heading:<9}", "dim"), cut(", ".join(ids), _WIDTH - 9)))
    if one.note:
        lines.append(Text(cut(f"note     {one.note}", _WIDTH), "yellow"))
    heads = "".join(f"{cut(label, _VALUE - 1):>{_VALUE}}" for label in (first, one.label))
    lines.append(Text(f"{'':<{_NAME}}{heads}{'change':>{_CHANGE}}", "dim"))
    lines.extend(_line(change) for change in one.metrics)
    if any(change.note.endswith("profile more of them") for change in one.metrics):
        lines.append(Text("Undecided: too few launches of the kernel to know their noise.", "dim"))
    return lines


def _line(change: MetricChange) -> Text:
    text = f"{cut(change.metric, _NAME - 1):<{_NAME}}"
    for value in (change.first, change.second):
        text += f"{value_text(value, change.unit):>{_VALUE}}"
    verdict = {"no difference shown": "no diff."}.get(change.verdict, change.verdict)
    return Text(f"{text}{change_text(change):>{_CHANGE}}  {verdict}".rstrip())


def value_text(value: float | None, unit: str) -> str:
    """A value in the most readable multiple of its unit."""
    if value is None:
        return "–"
    match unit:
        case "ns":
            return format_ns(value)
        case "byte":
            return format_bytes(value)
        case "byte/s":
            return f"{format_bytes(value)}/s"
        case "FLOP/s":
            return format_gflops(value / 1e9)
        case "hz":
            return f"{value / 1e9:.2f} GHz"
        case "%":
            return f"{value:.1f} %"
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def change_text(change: MetricChange) -> str:
    """Percentage points of percentages, otherwise percent of the first value."""
    if change.difference is None:
        return ""
    if change.unit == PERCENT:
        return f"{change.difference:+.1f} pp"
    if change.ratio is None:
        return "from 0"
    if change.ratio >= 10:
        return f"{change.ratio:.3g}×"
    return f"{100 * (change.ratio - 1):+.1f} %"
