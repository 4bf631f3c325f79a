"""A report of traces as one HTML file that loads nothing from the network.

Names of kernels, operators and files come from traces of any origin: templates and pictures escape
them, and the script inserts them as text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.metadata import version

import numpy as np
from markupsafe import Markup

from gemmetry.analysis.traces.report import TraceReport
from gemmetry.reports.pages import embed_json, page_templates, template_text
from gemmetry.reports.texts import cut
from gemmetry.reports.traces.bars import category_bars, gemm_bars, host_bars
from gemmetry.reports.traces.html_tables import page_tables
from gemmetry.reports.traces.plots import (
    bars_html,
    colours_of,
    common_folder,
    time_bars,
)
from gemmetry.reports.traces.tiles import gpu_tiles, host_tiles
from gemmetry.reports.traces.timeline import timeline_groups
from gemmetry.traces.timeline import KINDS

_MOST_TRACES = 40
"""The most traces with a bar each; the page states how many others are left out."""

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
_OF_GEMMS = {"gemm": "alone", "overlapped": "at the same time as communication"}
"""Colour -> its meaning, in each picture."""


def trace_page(report: TraceReport, *, command: str = "", created: str = "") -> str:
    """The page: how time is divided, the timeline, GEMMs, operators, kernels, collectives.

    Args:
        command: the command that created the report, as it was typed.
        created: the time at which it was created.
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
        tiles=gpu_tiles(report) if report.has_gpu_work else host_tiles(report),
        warnings=[cut(warning) for warning in report.warnings],
        remarks=[cut(remark) for remark in report.remarks],
        time_bars=Markup(bars_html(windows, "How the time of each trace is divided", 1.0)),
        time_legend=_legend(colours_of(windows), _OF_WINDOWS),
        timeline_legend=_legend({*in_lanes, "idle"},
                                _OF_TIMELINE if report.has_gpu_work else _OF_HOST),
        hidden_traces=hidden,
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
        style=Markup("\n".join(template_text(templates, name) for name in _STYLES)),
        scripts=[Markup(template_text(templates, script)) for script in _SCRIPTS],
        data=Markup(embed_json({"kinds": KINDS, "groups": timeline_groups(report)})),
        has_lanes=bool(report.lanes),
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
    """The folder of the traces, what they cover, and the version that created the page."""
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
