"""A report of traces as Markdown, short enough for a pull request or a wiki page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gemmetry.domain.units import counted
from gemmetry.results.tables import escape_markdown as escape
from gemmetry.results.tables import markdown_lines
from gemmetry.results.texts import cut
from gemmetry.traces.collective_text import ABOUT_BOUNDS, bounded
from gemmetry.traces.names import classify
from gemmetry.traces.page import steps_about
from gemmetry.traces.report import ONLY_ON, TraceReport

_MOST_ROWS = 15
_MOST_CHARACTERS = 100

_SHOWN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("summary", "Time", (
        "file", "kernels", "window_us", "busy_us", "compute_union_us", "exposed_comm_us",
        "idle_us", "gemm_kernel_us")),
    ("gemms", "GEMM kernels", (
        "short_name", "m", "n", "k", "batch", "dtype", "layout", "count", "sum_us", "median_us",
        "tflops", "peak_fraction", ONLY_ON)),
    ("host_products", "Matrix products of operators", (
        "operators", "m", "n", "k", "batch", "dtype", "layout", "count", "sum_us", "median_us",
        "tflops")),
    ("host_operators", "Operators on the host", (
        "name", "inputs", "layout", "count", "self_us", "self_share", "median_us")),
    ("ops_summary_by_category", "Operators", (
        "file", "op category", "Count", "total_direct_kernel_time_ms", "Percentage (%)")),
    ("collectives", "Collectives", (
        "job", "op", "dtype", "bytes", "group_size", "count", "latency_us_median",
        "busbw_gbps_median")),
    ("ranks", "Ranks", ("job", "rank", "last_count", "last_share", "waited_us")),
    ("steps", "Steps", (
        "file", "step", "phase", "kernels", "mark_us", "window_us", "busy_us", "exposed_comm_us",
        "others_us", "idle_us")),
    ("problems", "What could not be read or is missing", ("file", "where", "what", "count")),
)  # fmt: skip


_SHEETS = {"host_products": "host_operators"}
"""Tables without a sheet of their own -> the sheet that has their rows."""


def trace_markdown(report: TraceReport) -> str:
    """Headings, notes, and the first rows of some sheets."""
    parts = ["# Traces"]
    if report.notes:
        parts.append("\n".join(f"* {escape(cut(note, 500))}" for note in report.notes))
    for name, heading, wanted in _SHOWN:
        table = report.page_table(name)
        if table is None or (name == "summary" and not report.has_gpu_work):
            continue
        known = set(table.names)
        if "phase" in known and not any(table.values("phase")):
            known.remove("phase")
        shown = [column for column in wanted if column in known]
        rows = table.select(shown).rows[:_MOST_ROWS]
        numbers = [_is_number(row[place] for row in rows) for place in range(len(shown))]
        cells = [list(map(_text, row)) for row in rows]
        about = []
        if name == "collectives":
            complete, above = table.values("complete"), table.values("above_link")
            for row, is_complete, is_above in zip(cells, complete, above, strict=False):
                row[:] = [bounded(text, column, complete=is_complete, above_link=is_above)
                          for text, column in zip(row, shown, strict=True)]  # fmt: skip
            about = [] if all(complete) else [ABOUT_BOUNDS]
        if "above_peak" in table.names:
            for row, needs in zip(cells, table.values("above_peak"), strict=False):
                row[:] = [f"{text}!" if needs and text and column in ("tflops", "peak_fraction")
                          else text for text, column in zip(row, shown, strict=True)]  # fmt: skip
        if name == "steps":
            about = [steps_about(report)]
        parts += [f"## {heading}", *about, "\n".join(markdown_lines(shown, cells, numbers=numbers))]
        hidden = len(table.rows) - len(rows)
        if hidden:
            parts.append(
                f"{counted(hidden, 'more row is', 'more rows are')} in the sheet "
                f"`{_SHEETS.get(name, name)}` of the workbook."
            )
    return "\n\n".join(parts) + "\n"


def _is_number(values: Iterable[Any]) -> bool:
    return any(isinstance(value, (int, float)) for value in values)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = str(value)
    return cut(classify(text).short if len(text) > _MOST_CHARACTERS else text, 500)
