"""A report of traces as one HTML file that loads nothing from the network, and as Markdown, short
enough for a pull request or a wiki page: which sheets, which columns, and their texts.

Names of kernels, operators and files come from traces of any origin: templates and pictures escape
them, and the script inserts them as text.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from gemmetry.domain.tables import Table
from gemmetry.domain.units import column_decimals, format_gflops, format_memory, plural
from gemmetry.results.pages import render_page
from gemmetry.results.tables import escape_markdown, markdown_lines
from gemmetry.results.texts import cut
from gemmetry.traces.figures import (
    bars_html,
    category_bars,
    colours_of,
    gemm_bars,
    gpu_tiles,
    host_bars,
    host_tiles,
    short_paths,
    time_bars,
    timeline_groups,
)
from gemmetry.traces.gemms import common_folder
from gemmetry.traces.names import classify
from gemmetry.traces.report import ONLY_ON, TraceReport
from gemmetry.traces.text import ABOUT_BOUNDS, ABOUT_STEPS, bounded, steps_text
from gemmetry.traces.timeline import KINDS

_MOST_ROWS, _MOST_IN_MARKDOWN = 30, 15
_MOST_ROWS_OF = {"host_products": 100}
"""Rows of tables in which a recorded grid of shapes should appear whole."""

_MOST_DECIMALS = 3
"""Decimals of a column: a nanosecond of times in µs, a microsecond of times in ms."""

_UNBROKEN = 32
"""Characters of a cell that is kept on one line."""


_SHOWN = (
    ("summary", "Time", "file, kernels, window_us, busy_us, compute_union_us, exposed_comm_us, "
     "idle_us, gemm_kernel_us", "", "md"),
    ("gemms", "GEMM kernels by kernel and shape", "short_name, m, n, k, batch, dtype, layout, "
     "count, sum_us, median_us, mad_us, tflops, peak_fraction, overlapped_share, " + ONLY_ON,
     "", ""),
    ("host_products", "Matrix products of operators", "operators, m, n, k, batch, dtype, layout, "
     "count, sum_us, median_us, mad_us, min_us, max_us, tflops", "", ""),
    ("host_operators", "Operators on the host", "name, inputs, layout, count, self_us, self_share, "
     "total_us, median_us, min_us, max_us", "", ""),
    ("ops_summary_by_category", "Operators by what they do", "op category, Count, "
     "total_direct_kernel_time_ms, Percentage (%)", "", "md"),
    ("ops_summary", "Operators", "file, name, Count, total_direct_kernel_time_ms, "
     "Percentage (%), " + ONLY_ON, "total_direct_kernel_time_ms", "html"),
    ("kernel_summary", "Kernels", "file, Kernel name, Parent cpu_op, Kernel stream, "
     "Kernel duration (µs)_sum, Kernel duration (µs)_count, Kernel duration (µs)_mean, "
     "Percent of kernels time (%), " + ONLY_ON, "Kernel duration (µs)_sum", "html"),
    ("collectives", "Collectives by kind", "job, op, dtype, bytes, group_size, count, "
     "latency_us_median, start_skew_us_median, duration_us_median, algbw_gbps_median, "
     "busbw_gbps_median", "", ""),
    ("ranks", "Ranks: who came last, who waited",
     "job, rank, last_count, last_share, waited_us, unmatched", "", ""),
    ("steps", "Steps", "file, step, phase, kernels, mark_us, window_us, busy_us, exposed_comm_us, "
     "others_us, idle_us", "", ""),
    ("problems", "What could not be read or is missing", "file, where, what, count", "", ""),
)  # fmt: skip
"""Sheets that are shown: name, heading, columns, the column to sort by over all files, and whether
only a page or only Markdown has it."""

_HEADINGS = {
    "short_name": "kernel", "dtype": "type", "count": "calls", "sum_us": "total, µs",
    "mad_us": "MAD, µs", "tflops": "speed", "peak_fraction": "of peak",
    "overlapped_share": "overlap with communication", "operators": "operator", "name": "operator",
    "self_share": "share", "Count": "calls", "total_direct_kernel_time_ms": "kernel time, ms",
    "Percentage (%)": "share, %", "Kernel name": "kernel", "Parent cpu_op": "launched by",
    "Kernel stream": "stream", "Kernel duration (µs)_sum": "total, µs",
    "Kernel duration (µs)_count": "launches", "Kernel duration (µs)_mean": "mean, µs",
    "Percent of kernels time (%)": "share, %", "op": "operation", "bytes": "size",
    "group_size": "ranks", "latency_us_median": "latency, µs",
    "start_skew_us_median": "start skew, µs", "duration_us_median": "duration, µs",
    "algbw_gbps_median": "algorithm bandwidth, 10⁹ B/s",
    "busbw_gbps_median": "bus bandwidth, 10⁹ B/s", "last_count": "came last",
    "last_share": "share last", "compute_union_us": "computing, µs",
    "exposed_comm_us": "exposed communication, µs", "others_us": "only other work, µs",
    "gemm_kernel_us": "GEMM kernels, µs",
}  # fmt: skip
"""Columns of sheets -> their names on the page; the others keep their names, but for the unit."""

_OVER_FILES = (
    "gemms", "host_products", "host_operators", "ops_summary", "ops_summary_by_category",
    "kernel_summary",
)  # fmt: skip
"""Tables that combine all files."""

_NO_NAMES = ("file", "job", "inputs", "operators", "what")
"""Text columns other than names of kernels: their texts are cut instead of abbreviated."""


def page_tables(report: TraceReport, form: str = "html") -> Iterable[dict[str, Any]]:
    """The tables that are not empty: heading, anchor, remark, headings and rows of cells, how many
    rows are left out, and the sheet that has all rows.

    Args:
        form: ``html`` or ``md``.
    """
    labels, several = _labels(report), len(report.summaries) > 1
    for name, heading, columns, by, only in _SHOWN:
        table = report.page_table(name) if only in ("", form) else None
        if table is None or (name == "summary" and not report.has_gpu_work):
            continue
        known = set(table.names) - ({"job"} if len(report.jobs) == 1 else set())
        if "phase" in known and not any(table.values("phase")):
            known.remove("phase")
        shown = [column for column in columns.split(", ") if column in known]
        rows = table.select(shown).rows
        if by:
            rows = sorted(rows, key=itemgetter(shown.index(by)), reverse=True)
        meanings = {column.name: column.meaning for column in table.columns}
        most = _MOST_ROWS_OF.get(name, _MOST_ROWS) if form == "html" else _MOST_IN_MARKDOWN
        decimals = [_decimals(table.values(column), column) for column in shown]
        cells = [
            [_shown(*cell[:2], labels, cell[2]) for cell in zip(row, shown, decimals, strict=True)]
            for row in rows[:most]
        ]
        about = ["All files combined."] if several and name in (*_OVER_FILES, "steps") else []
        if name == "steps":
            texts = (steps_text(report.summaries, report.steps), ABOUT_STEPS)
            about += [f"{text[0].upper()}{text[1:]}." for text in texts]
        about += _mark(cells, shown, table)
        yield {
            "heading": heading,
            "anchor": name,
            "about": " ".join(about),
            "headings": [
                {
                    "text": _HEADINGS.get(column, re.sub("_us$", ", µs", column)),
                    "column": column,
                    "title": f"{column}: {meanings[column]}" if meanings[column] else column,
                    "number": any(row[place]["number"] for row in cells),
                }
                for place, column in enumerate(shown)
            ],
            "rows": cells,
            "hidden": max(0, len(rows) - most),
            "sheet": "host_operators" if name == "host_products" else name,
        }


def _mark(
    cells: Sequence[Sequence[dict[str, Any]]], columns: Sequence[str], table: Table
) -> list[str]:
    """Mark what is a bound, and put a ! after what cannot be; a sentence about the bounds."""
    known = set(table.names)
    complete = table.values("complete") if "complete" in known else [True] * len(cells)
    doubtful = next((table.values(c) for c in ("above_link", "above_peak") if c in known), ())
    marked = ("busbw_gbps_median", "tflops", "peak_fraction")
    for row, is_complete, doubt in zip(
        cells, complete, doubtful or [False] * len(cells), strict=False
    ):
        for cell, column in zip(row, columns, strict=True):
            cell["text"] = bounded(cell["text"], column, complete=is_complete)
            if doubt and column in marked and cell["text"]:
                cell["text"] += "!"
    return [] if all(complete) else [ABOUT_BOUNDS]


def trace_markdown(report: TraceReport) -> str:
    """Headings, notes, and the first rows of some sheets."""
    parts = ["# Traces"]
    if report.notes:
        parts.append("\n".join(f"* {escape_markdown(cut(note, 500))}" for note in report.notes))
    for table in page_tables(report, "md"):
        headings, rows = table["headings"], [[c["text"] for c in row] for row in table["rows"]]
        lines = markdown_lines(
            [one["text"] for one in headings], rows, numbers=[one["number"] for one in headings]
        )
        parts += filter(None, [f"## {table['heading']}", table["about"], "\n".join(lines)])
        if table["hidden"]:
            more = plural(table["hidden"], "more row is", "more rows are")
            parts.append(f"{more} in the sheet `{table['sheet']}` of the workbook.")
    return "\n\n".join(parts) + "\n"


def _labels(report: TraceReport) -> dict[str, str]:
    """Files and jobs -> the part of their names that distinguishes them."""
    found: dict[str, str] = {}
    for paths in ([s.file for s in report.summaries], [Path(j.job.name) for j in report.jobs]):
        distinct = list(dict.fromkeys(paths))
        short = short_paths(distinct) if len(distinct) > 1 else {p: p.name for p in distinct}
        found = {str(path): label for path, label in short.items()} | found
    return found


def _decimals(values: Sequence[Any], column: str) -> int:
    """The number of decimals of a column; a percentage has at most two."""
    numbers = [v for v in values if isinstance(v, float) and math.isfinite(v)]
    return column_decimals(numbers, 2 if "%" in column else _MOST_DECIMALS)


def _shown(value: Any, column: str, labels: Mapping[str, str], decimals: int) -> dict[str, Any]:
    """A cell: its text, whether it is a number, and the whole text where that is longer."""
    if value is None:
        return _cell("")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _cell(_number(value, column, decimals), number=True)
    text = str(value)
    short = labels.get(text, text) if column in ("file", "job") else text
    if len(text) > 80 and column not in _NO_NAMES:
        short = classify(text).short
    short = cut(short, 120)
    return _cell(short, title=cut(text) if short != text else "")


def _cell(text: str, *, number: bool = False, title: str = "") -> dict[str, Any]:
    words = " ".join(["number"] * number + ["unbroken"] * (len(text) <= _UNBROKEN))
    return {"text": text, "number": number, "title": title, "classes": words}


def _number(value: float, column: str, decimals: int) -> str:
    if column == "bytes":
        return format_memory(int(value))
    if column == "tflops":
        return format_gflops(value * 1000, even=True)
    if column.endswith(("_fraction", "_share")):
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{decimals}f}"


_MOST_TRACES = 40
"""The most traces with a bar each; the page states how many others are left out."""

_OF_TIMELINE = {
    "gemm": "GEMM",
    "attention": "attention",
    "other": "other kernels",
    "communication": "communication",
    "copy": "copies and fills",
    "idle": "idle",
}


_OF_WINDOWS = _OF_TIMELINE | {
    "communication": "exposed communication",
    "copy": "exposed copies",
}


_OF_HOST = _OF_TIMELINE | {"gemm": "matrix products", "other": "other operators"}


_OF_GEMMS = {"gemm": "alone", "overlapped": "at the same time as communication"}
"""Colour -> its meaning, in each picture."""


def trace_page(report: TraceReport, *, command: str = "", created: str = "") -> str:
    """The page: how time is divided, the timeline, GEMMs, operators, kernels, collectives.

    Args:
        command: the command that created the report, as it was typed.
        created: the time at which it was created.
    """
    windows = time_bars(report.summaries[:_MOST_TRACES])
    of_categories, of_host = category_bars(report), host_bars(report)
    in_lanes = {KINDS[kind] for lane in report.lanes for kind in np.unique(lane.kind).tolist()}
    return render_page(
        "trace_report.html.j2",
        styles=("report.css", "trace.css"),
        scripts=("format.js", "timeline.js"),
        data={"kinds": KINDS, "groups": timeline_groups(report)},
        title=_title(report),
        identity=_identity(report, created),
        command=cut(command, 4000),
        tiles=gpu_tiles(report) if report.has_gpu_work else host_tiles(report),
        warnings=[cut(warning) for warning in report.warnings],
        remarks=[cut(remark) for remark in report.remarks],
        time_bars=Markup(bars_html(windows, "How the time of each trace is divided", 1.0)),
        time_legend=_legend(colours_of(windows), _OF_WINDOWS),
        timeline_legend=_legend({*in_lanes, "idle"},
                                _OF_TIMELINE if report.has_gpu_work else _OF_HOST),
        hidden_traces=max(0, len(report.summaries) - _MOST_TRACES),
        gemm_bars=Markup(bars_html(gemm_bars(report.gemms, report.only_on),
                                  "GEMM time by kernel and shape")),
        gemm_legend=_legend(
            _OF_GEMMS if any(row.overlapped_ns for row in report.gemms) else (), _OF_GEMMS
        ),
        host_bars=Markup(bars_html(of_host, "Self time by operator")),
        host_legend=_legend(colours_of(of_host), _OF_HOST),
        product_bars=Markup(bars_html(gemm_bars(report.host_products),
                                     "Time of matrix products by operator and shape")),
        has_gpu=report.has_gpu_work,
        has_host=bool(report.host_operators),
        category_bars=Markup(bars_html(of_categories, "Kernel time by operators")),
        category_legend=_legend(colours_of(of_categories), _OF_TIMELINE),
        tables=list(page_tables(report)),
        has_lanes=bool(report.lanes),
        moments=[
            {"name": one.name, "what": one.what, "file": cut(one.file.name),
             "detail": one.detail, "content": b64encode(one.content).decode()}
            for one in report.moments
        ],
    )  # fmt: skip


def _legend(present: Collection[str], texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """The colours that are `present`, with their meanings."""
    return [(colour, text) for colour, text in texts.items() if colour in present]


def _title(report: TraceReport) -> str:
    files = [summary.file for summary in report.summaries]
    if len(files) == 1:
        return cut(files[0].name)
    folder = common_folder(files).name
    return f"{cut(folder)}: {len(files)} traces" if folder else f"{len(files)} traces"


def _identity(report: TraceReport, created: str) -> list[str]:
    """The folder of the traces, their extent, and the version that created the page."""
    folder = str(common_folder(summary.file for summary in report.summaries))
    parts = [f"in {cut(folder)}"] if folder not in ("", ".") else []
    ranks, jobs = sum(len(job.job.ranks) for job in report.jobs), len(report.jobs)
    if ranks > jobs:
        parts.append(f"{ranks} ranks" if jobs == 1 else f"{jobs} jobs, {ranks} ranks")
    parts += map(cut, report.devices)
    parts.append(f"gemmetry {version('gemmetry')}")
    return [*parts, created] if created else parts
