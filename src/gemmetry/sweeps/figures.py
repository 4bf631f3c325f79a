"""The interactive figures of a page about sweeps, as plotly's traces and layouts.

``tint`` of a trace is the place of its colour in the palette, which the page's script applies for
light and dark pages; every text is escaped, as plotly reads some markup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from statistics import geometric_mean
from typing import Any

from gemmetry.domain.units import counted, format_change, noun_for
from gemmetry.results.palette import SCALE, colour_at, ink_on
from gemmetry.results.texts import cut, printable
from gemmetry.statistics.comparison import Difference
from gemmetry.statistics.intervals import median
from gemmetry.sweeps.comparison import (
    WORKBOOKS,
    ComparedSweep,
    LabelledSweep,
    RowGroup,
    SweepRow,
    configuration_of,
    step_values,
)
from gemmetry.sweeps.model import SweepConfiguration
from gemmetry.sweeps.sentences import (
    MEASURES,
    PARTS,
    collective_label,
    gemm_label,
    marked_label,
    point_label,
    row_label,
)

Figure = dict[str, Any]

_MOST_BARS = 96
_MOST_ROWS = 40
"""Rows of a forest plot."""
_MOST_LINES = 8
_LEGEND_ROOM = 270
"""Least height in px of a figure whose legend may have a line for each part of the step: plotly
gives it half of the height."""

_TINTS = dict(zip(PARTS, (0, 1, 4, 5, 7), strict=True))
_VERDICT_TINTS = {"slower": 1, "faster": 2, "no difference shown": 0}
_NO_VERDICT = 7


def text_of(text: str) -> str:
    """A text that plotly shows as it is."""
    return escape(cut(printable(text), 90), quote=False)


def split_figure(
    sweeps: Sequence[LabelledSweep], *, without: Collection[str] = ()
) -> Figure | None:
    """How the step of each point is divided.

    Args:
        without: parts that are left out, so that small ones can be compared.
    """
    several = len(sweeps) > 1
    rows = [
        (f"{marked_label(point)} · {sweep.label}" if several else marked_label(point), point)
        for sweep in sweeps
        for point in sweep.document["points"]
        if point["step_ms"]["median"] is not None
    ]
    rows.sort(key=lambda row: configuration_of(row[1]).order)
    hidden, rows = max(0, len(rows) - _MOST_BARS), rows[:_MOST_BARS]
    if not rows:
        return None
    labels = [text_of(label) for label, _ in rows]
    traces = [
        {
            "type": "bar", "orientation": "h", "name": name, "tint": _TINTS[part], "y": labels,
            "x": [point[part] or 0 for _, point in rows],
            "hovertemplate": f"%{{y}}<br>{name} %{{x:.2f}} ms<extra></extra>",
        }
        for part, name in PARTS.items()
        if part not in without
    ]  # fmt: skip
    if not without:
        traces.append(_medians(rows, labels))
    return {
        "traces": traces,
        "layout": {"barmode": "stack", "xaxis": {"title": "ms, of the median step"},
                   "yaxis": {"autorange": "reversed"}},
        "height": max(_LEGEND_ROOM, 120 + 24 * len(rows)),
        "note": f"{counted(hidden, 'point is', 'points are')} left out; the table below has all."
                if hidden else "",
    }  # fmt: skip


def _medians(
    rows: Sequence[tuple[str, Mapping[str, Any]]], labels: Sequence[str]
) -> dict[str, Any]:
    """A mark at the median step of each point, with its interval."""
    low, high = zip(*(_interval(point) for _, point in rows), strict=True)
    return {
        "type": "scatter", "mode": "markers", "name": "median step", "y": labels, "ink": True,
        "x": [point["step_ms"]["median"] for _, point in rows],
        "marker": {"symbol": "line-ns-open", "size": 9},
        "error_x": {"type": "data", "symmetric": False, "array": high, "arrayminus": low},
        "hovertemplate": "%{y}<br>median step %{x:.2f} ms<extra></extra>",
    }  # fmt: skip


def _interval(point: Mapping[str, Any]) -> tuple[float, float]:
    step = point["step_ms"]
    if step["ci_low"] is None:
        return 0.0, 0.0
    return step["median"] - step["ci_low"], step["ci_high"] - step["median"]


def maps(sweeps: Sequence[LabelledSweep]) -> list[Figure]:
    """The step's time over threads × channels, one map for each sweep and further axes. Points that
    did not run or have no steps are empty and name the reason."""
    found = []
    for sweep in sweeps:
        values = {one: geometric_mean(of) for one, of in step_values(sweep.document).items()}
        outcomes = {configuration_of(one): one for one in sweep.document["points"]}
        for axes in sorted({one.axes for one in outcomes}):
            chosen = [one for one in outcomes if one.axes == axes]
            parts = [sweep.label] if len(sweeps) > 1 else []
            parts += [f"{name}={value}" for name, value in axes]
            if len(chosen) > 1 and sweep.document.get("source") != WORKBOOKS:
                found.append(_map(", ".join(parts), chosen, values, outcomes))
    return found


def _map(
    title: str,
    chosen: Sequence[SweepConfiguration],
    values: Mapping[SweepConfiguration, float],
    outcomes: Mapping[SweepConfiguration, Mapping[str, Any]],
) -> Figure:
    threads = sorted({one.threads or 0 for one in chosen})
    channels = sorted({one.channels or 0 for one in chosen})
    by_place = {(one.threads or 0, one.channels or 0): one for one in chosen}
    known = [values[one] for one in chosen if one in values]
    least, most = min(known, default=0.0), max(known, default=0.0)
    grid: list[list[float | None]] = []
    texts: list[dict[str, Any]] = []
    for y, thread in enumerate(threads):
        row: list[float | None] = []
        for x, channel in enumerate(channels):
            one = by_place.get((thread, channel))
            value = values.get(one) if one else None
            row.append(value)
            label = {"x": x, "y": y, "showarrow": False}
            if value is None:
                texts.append({**label, "text": text_of(_why_empty(outcomes[one] if one else None))})
                continue
            share = (most - value) / (most - least) if most > least else 1.0
            best = "<b>{}</b>" if value == least else "{}"
            texts.append({
                **label, "text": best.format(f"{value:.2f}"),
                "font": {"color": ink_on(colour_at(share))},
            })  # fmt: skip
        grid.append(row)
    # Short steps are light, like fast configurations on other maps.
    scale = [[i / (len(SCALE) - 1), colour] for i, colour in enumerate(reversed(SCALE))]
    return {
        "title": text_of(title),
        "traces": [{
            "type": "heatmap", "z": grid, "colorscale": scale, "xgap": 2, "ygap": 2,
            "hoverongaps": False, "colorbar": {"title": {"text": "ms"}, "thickness": 12},
            "hovertemplate": "%{z:.2f} ms<extra></extra>",
        }],
        "layout": {
            "annotations": texts,
            "xaxis": {"title": "channels", **_ticks(channels)},
            "yaxis": {"title": "threads", **_ticks(threads)},
        },
        "height": 150 + 56 * len(threads),
    }  # fmt: skip


def _why_empty(point: Mapping[str, Any] | None) -> str:
    """Why a point has no time."""
    if point is None:
        return "not run"
    if point["outcome"] != "ok":
        return str(point["outcome"]).replace("_", " ")
    return "incomplete" if point.get("left_out") else "no steps"


def _ticks(values: Sequence[int]) -> dict[str, Any]:
    return {"tickvals": list(range(len(values))), "ticktext": [str(one or "–") for one in values],
            "showgrid": False, "zeroline": False}  # fmt: skip


def slowdown_forest(sweeps: Sequence[LabelledSweep]) -> Figure | None:
    """The slowdown of each GEMM with its interval, those that cost most per step first."""
    several = len(sweeps) > 1
    found = [
        (sweep, one)
        for sweep in sweeps
        for one in sweep.document["pooled_gemms"]
        if one["slowdown_ci_low"] is not None
    ]
    found.sort(key=lambda item: -abs(item[1]["cost_ms_per_step"] or 0))
    rows = [
        {
            "label": f"{gemm_label(one, sweep.document['pooled_gemms'])} · {point_label(one)}"
            + (f" · {sweep.label}" if several else ""),
            "ratio": one["slowdown"], "low": one["slowdown_ci_low"],
            "high": one["slowdown_ci_high"], "verdict": one["verdict"],
            "hover": f"{one['alone_median_us']:,.0f} µs alone ({one['alone_count']}), "
            f"{one['overlapped_median_us']:,.0f} µs next to communication "
            f"({one['overlapped_count']})<br>{text_of(one['kernel'])}",
        }
        for sweep, one in found
    ]  # fmt: skip
    return _forest(rows, "duration next to communication over duration alone")


def change_forest(
    candidate: ComparedSweep, groups: Iterable[RowGroup], title: str
) -> Figure | None:
    """Ratios of a candidate to the first sweep with their intervals: what is decided before what is
    not, and the largest change first; points stay in their order."""
    rows: list[SweepRow] = [row for group in groups for row in candidate.of(group)]
    rows = [row for row in rows if row.comparison.interval or row.group is RowGroup.STEP]
    if any(row.what for row in rows):
        sizes = {id(row): max(row.comparison.ratio, 1 / row.comparison.ratio) for row in rows}
        rows.sort(key=lambda row: (row.verdict is Difference.UNDECIDED, -sizes[id(row)]))
    return _forest(
        [
            {
                "label": _change_label(row, rows), "ratio": row.comparison.ratio,
                "low": row.comparison.ratio_low, "high": row.comparison.ratio_high,
                "verdict": str(row.verdict),
                "hover": f"{row.before:,.2f} → {row.after:,.2f} {row.unit}<br>"
                f"{text_of(MEASURES[row.measure])}",
            }
            for row in rows
        ],
        title,
    )  # fmt: skip


def _change_label(row: SweepRow, among: Sequence[SweepRow]) -> str:
    point = row.configuration.label if row.configuration else "all points"
    measure = MEASURES[row.measure]
    return f"{row_label(row, among)}, {measure} · {point}" if row.what else point


def _forest(rows: Sequence[Mapping[str, Any]], title: str) -> Figure | None:
    if not rows:
        return None
    hidden, rows = max(0, len(rows) - _MOST_ROWS), rows[:_MOST_ROWS]
    # An interval that decides nothing may be so wide that nothing else could be seen next to it.
    decided = [row for row in rows if row["verdict"] != str(Difference.UNDECIDED)]
    ends = [1.0, *(row["ratio"] for row in rows)]
    ends += [row[end] for row in decided or rows for end in ("low", "high") if row[end]]
    room = 0.04 * (max(ends) - min(ends)) or 0.01
    left, right = min(ends) - room, max(ends) + room
    is_clipped = any((row["low"] or left) < left or (row["high"] or right) > right for row in rows)
    notes = [f"{hidden} more {noun_for(hidden, 'is', 'are')} in the table."] if hidden else []
    notes += ["Intervals of undecided rows may continue beyond the chart."] if is_clipped else []
    traces = []
    for verdict in dict.fromkeys(row["verdict"] for row in rows):
        chosen = [(place, row) for place, row in enumerate(rows) if row["verdict"] == verdict]
        traces.append({
            "type": "scatter", "mode": "markers", "name": verdict,
            "tint": _VERDICT_TINTS.get(verdict, _NO_VERDICT), "marker": {"size": 9},
            "y": [place for place, _ in chosen], "x": [row["ratio"] for _, row in chosen],
            "error_x": {
                "type": "data", "symmetric": False, "thickness": 1.6, "width": 4,
                "array": [(row["high"] or row["ratio"]) - row["ratio"] for _, row in chosen],
                "arrayminus": [row["ratio"] - (row["low"] or row["ratio"]) for _, row in chosen],
            },
            "text": [f"<b>{text_of(row['label'])}</b><br>"
                     f"{format_change(row['ratio'])}{_hover(row)}<br>{row['hover']}<br>"
                     f"{row['verdict']}" for _, row in chosen],
            "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    return {
        "traces": traces,
        "layout": {
            "xaxis": {"title": title, "range": [left, right]},
            "yaxis": {"tickvals": list(range(len(rows))), "range": [len(rows) - 0.4, -0.6],
                      "ticktext": [text_of(row["label"]) for row in rows], "zeroline": False},
            "line_at": 1,
        },
        "height": 130 + 23 * len(rows),
        "note": " ".join(notes),
        "wide": True,
    }  # fmt: skip


def _hover(row: Mapping[str, Any]) -> str:
    if row["low"] is None:
        return ""
    return f" ({format_change(row['low'])} to {format_change(row['high'])})"


def dose_figure(sweeps: Sequence[LabelledSweep]) -> Figure | None:
    """The median slowdown by overlapped share, of the GEMMs that cost most and whose instances
    overlap to different degrees."""
    several = len(sweeps) > 1
    found = [
        (sweep, one)
        for sweep in sweeps
        for one in sweep.document["pooled_gemms"]
        if len(one.get("by_share", ())) > 1 and one["alone_count"]
    ]
    found.sort(key=lambda item: -abs(item[1]["cost_ms_per_step"] or 0))
    traces = []
    for place, (sweep, one) in enumerate(found[:_MOST_LINES]):
        shares = [(0.0, 1.0, one["alone_count"])]
        shares += [((s["low"] + s["high"]) / 2, s["slowdown"], s["count"]) for s in one["by_share"]]
        label = f"{gemm_label(one, sweep.document['pooled_gemms'])} · {point_label(one)}"
        label += f" · {sweep.label}" if several else ""
        traces.append({
            "type": "scatter", "mode": "lines+markers", "name": text_of(label), "tint": place,
            "x": [share for share, _, _ in shares], "y": [slow for _, slow, _ in shares],
            "text": [counted(count, "instance") for _, _, count in shares],
            "hovertemplate": "%{x:.0%} overlapped: %{y:.3f}×<br>%{text}<extra></extra>",
        })  # fmt: skip
    if not traces:
        return None
    return {
        "traces": traces,
        "layout": {
            "xaxis": {"title": "share of the GEMM next to communication", "tickformat": ".0%"},
            "yaxis": {"title": "median duration, alone = 1"},
            "legend": {"orientation": "v", "x": 1.02, "y": 1, "xanchor": "left", "yanchor": "top"},
        },
        "height": 380,
        "narrow_legend": True,
    }


def collective_figure(sweeps: Sequence[LabelledSweep]) -> Figure | None:
    """The median bus bandwidth of each operation and size over the channels, with a line for each
    number of threads, further axes and sweep."""
    several = len(sweeps) > 1
    series: dict[str, dict[int, list[float]]] = {}
    for sweep in sweeps:
        for one in sweep.document["collectives"]:
            if one["busbw_gbps"] is None:
                continue
            point = configuration_of(one)
            parts = [collective_label(one)]
            if point.threads is not None or point.axes:
                parts.append(SweepConfiguration(point.threads, None, point.axes).label)
            parts += [sweep.label] if several else []
            values = series.setdefault(" · ".join(parts), {})
            values.setdefault(point.channels or 0, []).append(one["busbw_gbps"])
    if not series:
        return None
    channels = sorted({one for values in series.values() for one in values})
    largest = sorted(series, key=lambda label: -max(map(max, series[label].values())))
    hidden = max(0, len(largest) - _MOST_LINES)
    return {
        "traces": [
            {
                "type": "scatter", "mode": "lines+markers", "name": text_of(label), "tint": place,
                "x": [channels.index(one) for one in sorted(series[label])],
                "y": [median(series[label][one]) for one in sorted(series[label])],
                "hovertemplate": f"{text_of(label)}<br>%{{y:.1f}} GB/s<extra></extra>",
            }
            for place, label in enumerate(largest[:_MOST_LINES])
        ],
        "layout": {
            "yaxis": {"title": "bus bandwidth, GB/s", "rangemode": "tozero"},
            "xaxis": {"title": "channels", "tickvals": list(range(len(channels))),
                      "ticktext": [str(one or "–") for one in channels], "zeroline": False},
        },
        "height": 400,
        "note": f"{hidden} slower ones are in the table." if hidden else "",
    }  # fmt: skip
