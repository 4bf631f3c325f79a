"""A report of traces as one HTML file that asks the network for nothing.

Names of kernels, operators and files come from traces of anybody: templates escape them, pictures
escape them, and the script puts them in as text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from gemmetry.domain.units import format_gflops, format_ns
from gemmetry.reports.pages import embed_json, page_templates, template_text
from gemmetry.reports.trace_bars import category_bars, gemm_bars, host_bars
from gemmetry.reports.trace_html_tables import cut, page_tables
from gemmetry.reports.trace_plots import (
    bars_svg,
    colours_of,
    common_folder,
    short_paths,
    time_bars,
)
from gemmetry.reports.trace_report import TraceReport
from gemmetry.reports.trace_tables import shape_text
from gemmetry.traces.summary import Summary
from gemmetry.traces.timeline import KINDS, Lane

MOST_LANES = 128
"""Lanes of one picture; of more, those with the most work are drawn."""

_MOST_TRACES = 40
"""Bars of traces; of more the page tells how many are left out."""

_STYLES = ("report.css", "trace.css")
_SCRIPTS = ("format.js", "timeline.js")


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
"""What colours mean in each picture."""


def trace_page(report: TraceReport, *, command: str = "", created: str = "") -> str:
    """The page: how time divides, the timeline, GEMMs, operators, kernels, collectives.

    Args:
        command: that made the report, as it was typed.
        created: when it was made.
    """
    templates = page_templates()
    hidden = max(0, len(report.summaries) - _MOST_TRACES)
    windows = time_bars(report.summaries[:_MOST_TRACES])
    of_categories, of_host = category_bars(report), host_bars(report)
    in_lanes = {KINDS[kind] for lane in report.lanes for kind in np.unique(lane.kind).tolist()}
    return templates.get_template("trace_report.html.j2").render(
        title=_title(report),
        identity=_identity(report, created),
        command=cut(command, 4000),
        tiles=_tiles(report.summaries) if report.has_gpu_work else _host_tiles(report),
        warnings=[cut(warning) for warning in report.warnings],
        remarks=[cut(remark) for remark in report.remarks],
        time_bars=Markup(bars_svg(windows, "How the time of each trace divides", 1.0)),
        time_legend=_legend(colours_of(windows), _OF_WINDOWS),
        timeline_legend=_legend({*in_lanes, "idle"},
                                _OF_TIMELINE if report.has_gpu_work else _OF_HOST),
        hidden_traces=hidden,
        gemm_bars=Markup(bars_svg(gemm_bars(report.gemms), "GEMM time by kernel and shape")),
        has_overlap=any(row.overlapped_ns for row in report.gemms),
        host_bars=Markup(bars_svg(of_host, "Self time by operator")),
        host_legend=_legend(colours_of(of_host), _OF_HOST),
        product_bars=Markup(bars_svg(gemm_bars(report.host_products),
                                     "Time of matrix products by operator and shape")),
        has_gpu=report.has_gpu_work,
        has_host=bool(report.host_operators),
        category_bars=Markup(bars_svg(of_categories, "Kernel time by operators")),
        category_legend=_legend(colours_of(of_categories), _OF_TIMELINE),
        tables=list(page_tables(report)),
        style=Markup("\n".join(template_text(templates, name) for name in _STYLES)),
        scripts=[Markup(template_text(templates, script)) for script in _SCRIPTS],
        data=Markup(embed_json({"kinds": KINDS, "groups": timeline_groups(report)})),
        has_lanes=bool(report.lanes),
    )  # fmt: skip


def _legend(present: Collection[str], texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """The colours that are `present`, with what they mean."""
    return [(colour, text) for colour, text in texts.items() if colour in present]


def timeline_groups(report: TraceReport) -> list[dict[str, Any]]:
    """What the timeline is drawn from: a group of lanes for each job, on one time axis."""
    by_file: dict[str, list[Lane]] = {}
    for lane in report.lanes:
        by_file.setdefault(lane.file, []).append(lane)
    groups = []
    names = {job.job.name: Path(job.job.name) for job in report.jobs}
    labels = short_paths(list(names.values())) if len(names) > 1 else {}
    for job in report.jobs:
        lanes = [
            (one.rank, lane) for one in job.job.ranks for lane in by_file.get(str(one.file), ())
        ]
        if lanes:
            name = job.job.name
            groups.append(_group(labels.get(names[name], name), lanes))
    return groups


def _group(label: str, lanes: Sequence[tuple[int | None, Lane]]) -> dict[str, Any]:
    drawn = lanes
    if len(lanes) > MOST_LANES:
        longest = sorted(lanes, key=lambda lane: -int(lane[1].duration_ns.sum()))[:MOST_LANES]
        kept = {id(lane) for _, lane in longest}
        drawn = [lane for lane in lanes if id(lane[1]) in kept]
    base = min(int(lane.start_ns.min()) for _, lane in drawn)
    end = max(int((lane.start_ns + lane.duration_ns).max()) for _, lane in drawn)
    has_ranks = len({rank for rank, _ in drawn}) > 1
    has_devices = len({lane.device for _, lane in drawn}) > 1
    has_processes = len({lane.thread.rpartition("/")[0] for _, lane in drawn}) > 1
    names: dict[str, int] = {}
    return {
        "label": cut(label),
        "window": end - base,
        "left_out": len(lanes) - len(drawn),
        "lanes": [
            _lane(lane, _lane_label(rank, lane, has_ranks, has_devices, has_processes), base, names)
            for rank, lane in drawn
        ],
        "names": list(names),
    }


def _lane(lane: Lane, label: str, base: int, names: dict[str, int]) -> dict[str, Any]:
    place = [names.setdefault(cut(name, 120), len(names)) for name in lane.names]
    return {
        "label": label,
        # Differences are short to write; the script adds them up.
        "start": np.diff(lane.start_ns, prepend=base).tolist(),
        "length": lane.duration_ns.tolist(),
        "kind": lane.kind.tolist(),
        "name": np.array(place, np.int64)[lane.name].tolist(),
        "count": lane.count.tolist() if int(lane.count.max()) > 1 else None,
    }


def _lane_label(
    rank: int | None, lane: Lane, has_ranks: bool, has_devices: bool, has_processes: bool
) -> str:
    parts = [f"rank {rank}"] if has_ranks else []
    if lane.thread:
        whole = has_processes and not has_ranks
        name = lane.thread if whole else lane.thread.rpartition("/")[2]
        return " · ".join([*parts, f"thread {cut(name, 40)}"])
    parts += [f"GPU {lane.device}"] if has_devices and not has_ranks else []
    return " · ".join([*parts, f"stream {lane.stream}"])


def _title(report: TraceReport) -> str:
    files = [summary.file for summary in report.summaries]
    if len(files) == 1:
        return cut(files[0].name)
    folder = common_folder(files).name
    return f"{cut(folder)}: {len(files)} traces" if folder else f"{len(files)} traces"


def _identity(report: TraceReport, created: str) -> list[str]:
    """Where the traces are, of what, and what made the page."""
    files = [summary.file for summary in report.summaries]
    folder = str(common_folder(files))
    parts = [f"in {cut(folder)}"] if folder not in ("", ".") else []
    ranks = sum(len(job.job.ranks) for job in report.jobs)
    if ranks > len(report.jobs):
        jobs = len(report.jobs)
        parts.append(f"{ranks} ranks" if jobs == 1 else f"{jobs} jobs, {ranks} ranks")
    parts += map(cut, report.devices)
    parts.append(f"gemmetry {version('gemmetry')}")
    return [*parts, created] if created else parts


def _tiles(summaries: Sequence[Summary]) -> list[dict[str, str]]:
    """Sums over all traces with work on a GPU, as shares of the sum of their windows."""
    summaries = [summary for summary in summaries if summary.window_ns] or summaries
    window = sum(summary.window_ns for summary in summaries)

    def share(ns: int) -> str:
        return f"{ns / window:.1%}" if window else "–"

    tiles = [{
        "label": "window" if len(summaries) == 1 else f"windows of {len(summaries)} traces",
        "value": format_ns(window),
        "detail": f"{sum(s.kernels for s in summaries):,} kernels",
    }]  # fmt: skip
    for label, name, detail in (
        ("busy", "busy_ns", "anything ran"),
        ("computing", "compute_union_ns", "kernels that do not communicate, fills"),
        ("exposed communication", "exposed_comm_ns", "nothing was computed beside it"),
        ("idle", "idle_ns", "nothing ran"),
    ):
        ns = sum(getattr(summary, name) for summary in summaries)
        tiles.append({"label": label, "value": share(ns), "detail": f"{format_ns(ns)}, {detail}"})
    ns, count = (sum(getattr(s, name) for s in summaries) for name in
                 ("gemm_kernel_ns", "gemm_kernels"))  # fmt: skip
    tiles.append({"label": "GEMM kernels", "value": share(ns),
                  "detail": f"{format_ns(ns)}, sum of {count:,}"})  # fmt: skip
    return tiles


def _host_tiles(report: TraceReport) -> list[dict[str, str]]:
    """Sums over all traces; shares are of the time in operators."""
    operators, products = report.host_operators, report.host_products
    spent = sum(row.self_ns for row in operators)
    of_products = sum(row.sum_ns for row in products)
    files = len(report.summaries)
    tiles = [
        {"label": "work on a GPU", "value": "none",
         "detail": "in this trace" if files == 1 else f"in {files:,} traces"},
        {"label": "time in operators", "value": format_ns(spent),
         "detail": f"{sum(row.count for row in operators):,} calls, on all threads together"},
    ]  # fmt: skip
    if products:
        calls = sum(row.count for row in products)
        tiles.append({
            "label": "matrix products",
            "value": f"{of_products / spent:.1%}" if spent else "–",
            "detail": f"{format_ns(of_products)}, {calls:,} calls",
        })  # fmt: skip
    timed = [(row.tflops, row) for row in products if row.tflops is not None]
    if timed:
        tflops, row = max(timed, key=lambda pair: pair[0])
        shape = shape_text(row.shape, row.dtype, row.layout)
        tiles.append({"label": "fastest product, by its median",
                      "value": format_gflops(tflops * 1000), "detail": shape})  # fmt: skip
    return tiles
