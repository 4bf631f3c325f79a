"""The bars of a page of traces: the time of operators, products and kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from pathlib import Path

from gemmetry.analysis.traces.report import TraceReport
from gemmetry.analysis.traces.sums import kernel_time_by_category, self_time_by_operator
from gemmetry.domain.units import format_gflops, format_ns
from gemmetry.reports.texts import MOST_CHARACTERS
from gemmetry.reports.traces.plots import Bar
from gemmetry.reports.traces.tables import shape_text
from gemmetry.traces.gemms.summary import GemmRow
from gemmetry.traces.timeline import operator_kind

_MOST_BARS = 15

_COLOURS = {"gemm": "GEMM", "attention": "attention", "other": "other kernels",
            "communication": "communication"}  # fmt: skip
"""Colour of each class of kernels -> the name of the class, in the order of a bar's parts."""


def host_bars(report: TraceReport) -> list[Bar]:
    """Bars of self time by the operator's name."""
    return [
        Bar(
            name,
            ((operator_kind(name), ns),),
            format_ns(ns, even=True),
            f"{name[:MOST_CHARACTERS]}: {count:,} ×",
        )
        for name, ns, count in self_time_by_operator(report.host_operators)[:_MOST_BARS]
    ]


def gemm_bars(
    rows: Sequence[GemmRow], only_on: Callable[[Set[Path]], str] = lambda _: ""
) -> list[Bar]:
    """Bars of the time of products by kernel or operator and shape, labelled with the kernel's name
    where no shape is known, and with the text of `only_on` for the row's files."""
    bars = []
    for row in rows[:_MOST_BARS]:
        speed = "" if row.tflops is None else f" · {format_gflops(row.tflops * 1000, even=True)}"
        share = "" if row.peak_fraction is None else f" · {row.peak_fraction:.1%}"
        share += "!" if row.above_peak else ""
        overlapped = (row.overlapped_ns or 0) / 1e6
        parts = (("gemm", row.sum_ns / 1e6 - overlapped), ("overlapped", overlapped))
        label = shape_text(row.shape, row.dtype, row.layout)
        name = row.facts.short or row.kernel[:MOST_CHARACTERS]
        value = f"{format_ns(row.sum_ns, even=True)}{speed}{share}"
        operators = f", {', '.join(row.operators)}" if row.operators else ""
        alone = only_on(row.files)
        hint = (
            f"{name}, {label}{operators}: {row.count:,} ×{speed}{alone and f' · only on {alone}'}"
        )
        text = label if row.shape is not None else name
        bars.append(Bar(f"{text} · {alone}" if alone else text, parts, value, hint))
    return bars


def category_bars(report: TraceReport) -> list[Bar]:
    """Bars of kernel time by what the launching operator does, divided by what the kernel itself
    does: the launch of a graph contains kernels of every kind."""
    table = report.page_table("kernel_summary")
    if table is None:
        return []
    sums = kernel_time_by_category(table)
    ordered = sorted(sums.items(), key=lambda item: -sum(item[1].values()))[:_MOST_BARS]
    return [_category_bar(word, parts) for word, parts in ordered]


def _category_bar(word: str, parts: dict[str, float]) -> Bar:
    listed = ", ".join(
        f"{_COLOURS[colour]} {format_ns(us * 1000)}" for colour, us in parts.items() if us
    )
    whole = format_ns(sum(parts.values()) * 1000, even=True)
    return Bar(word, tuple(parts.items()), whole, f"{word[:MOST_CHARACTERS]}: {listed}")
