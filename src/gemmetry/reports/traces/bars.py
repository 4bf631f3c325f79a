"""The bars of a page of traces: what operators, products and kernels took."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from pathlib import Path

from gemmetry.analysis.traces.report import TraceReport
from gemmetry.domain.units import format_gflops, format_ns
from gemmetry.kernel_names import GEMM_KINDS, KernelKind, classify
from gemmetry.reports.traces.html_tables import MOST_CHARACTERS
from gemmetry.reports.traces.plots import Bar
from gemmetry.reports.traces.tables import shape_text
from gemmetry.traces.gemms.summary import GemmRow
from gemmetry.traces.timeline import operator_kind

_MOST_BARS = 15

_NO_LAUNCH = "launch not in the trace"

_WORDS = {"record_param_comms": "communication"}
"""Categories whose names are those of operators -> what such operators do."""

_COLOURS = {"gemm": "GEMM", "attention": "attention", "other": "other kernels",
            "communication": "communication"}  # fmt: skip
"""Of what kernels do, in the order of a bar's parts, with their names."""


def host_bars(report: TraceReport) -> list[Bar]:
    """Self time by the operator's name."""
    sums: dict[str, list[int]] = {}
    for row in report.host_operators:
        found = sums.setdefault(row.name, [0, 0])
        found[0] += row.self_ns
        found[1] += row.count
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])[:_MOST_BARS]
    return [
        Bar(
            name,
            ((operator_kind(name), ns),),
            format_ns(ns, even=True),
            f"{name[:MOST_CHARACTERS]}: {count:,} ×",
        )
        for name, (ns, count) in ordered
    ]


def gemm_bars(
    rows: Sequence[GemmRow], only_on: Callable[[Set[Path]], str] = lambda _: ""
) -> list[Bar]:
    """Time of products by kernel or operator and shape; the kernel's name where no shape is
    known, and what `only_on` says of the row's files."""
    bars = []
    for row in rows[:_MOST_BARS]:
        speed = "" if row.tflops is None else f" · {format_gflops(row.tflops * 1000, even=True)}"
        share = "" if row.peak_fraction is None else f" · {row.peak_fraction:.1%}"
        overlapped = (row.overlapped_ns or 0) / 1e6
        parts = (("gemm", row.sum_ns / 1e6 - overlapped), ("beside", overlapped))
        label = shape_text(row.shape, row.dtype, row.layout)
        name = row.told.short or row.kernel[:MOST_CHARACTERS]
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
    """Kernel time by what the operator that launched a kernel does, divided by what the kernel
    itself does: a launch of a graph holds kernels of every kind."""
    table = report.page_table("kernel_summary")
    if table is None:
        return []
    category, parent, name, spent = (
        table.names.index(heading)
        for heading in (
            "Parent op category",
            "Parent cpu_op",
            "Kernel name",
            "Kernel duration (µs)_sum",
        )
    )
    sums: dict[str, dict[str, float]] = {}
    for row in table.rows:
        word = _NO_LAUNCH if row[parent] is None else row[category] or "other"
        parts = sums.setdefault(_WORDS.get(word, word), dict.fromkeys(_COLOURS, 0.0))
        parts[_colour(row[name])] += row[spent]
    ordered = sorted(sums.items(), key=lambda item: -sum(item[1].values()))[:_MOST_BARS]
    return [_category_bar(word, parts) for word, parts in ordered]


def _category_bar(word: str, parts: dict[str, float]) -> Bar:
    told = ", ".join(
        f"{_COLOURS[colour]} {format_ns(us * 1000)}" for colour, us in parts.items() if us
    )
    whole = format_ns(sum(parts.values()) * 1000, even=True)
    return Bar(word, tuple(parts.items()), whole, f"{word[:MOST_CHARACTERS]}: {told}")


def _colour(kernel: str) -> str:
    kind = classify(kernel).kind
    if kind in GEMM_KINDS:
        return "gemm"
    return {KernelKind.ATTENTION: "attention", KernelKind.COLLECTIVE: "communication"}.get(
        kind, "other"
    )
