"""Presentation of a history: on a terminal, and as a static folder.

The folder has one page, and scripts with the points of its series, which the page loads on demand.
Nothing comes from the network, and no server is needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gemmetry.domain.units import format_ns, plural
from gemmetry.hardware.detect import own_version
from gemmetry.history.api import History
from gemmetry.history.changes import CAUSES, HistoryChanges
from gemmetry.history.rows import (
    EventGroup,
    again_text,
    event_groups,
    series_row,
    undecided_text,
)
from gemmetry.results.emit import write_atomically, written_together
from gemmetry.results.lines import print_line
from gemmetry.results.pages import embed_json, render_page
from gemmetry.results.texts import elide, printable

BARS = "▁▂▃▄▅▆▇█"
_GAP = "·"
"""Mark of a run in a sparkline that did not measure the dispatch."""

_MOST_SHOWN = 20
"""Changes that are not new, on a terminal."""

_HEIGHT = 8
"""Lines of a plot."""

_WIDEST = 40
"""Characters of a sparkline."""


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as a line of bars at most `width` long, from their smallest to their largest; each
    bar is the median of the runs that it stands for."""
    cells = _binned(values, width)
    known = [value for value in cells if math.isfinite(value)]
    if not known:
        return _GAP * len(cells)
    low, high = min(known), max(known)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(
        BARS[round((value - low) * scale)] if math.isfinite(value) else _GAP for value in cells
    )


def print_history(
    check: History, chosen: Sequence[tuple[HistoryChanges, int]], console: Console
) -> None:
    """Print a row for each of the `chosen` series; a single one with a plot and its changes."""
    for found in check.devices:
        own = [series for one, series in chosen if one is found]
        if not own:
            continue
        history = found.history
        days = f"{history.runs[0].time[:10]} to {history.runs[-1].time[:10]}"
        print_line(Text(f"{printable(history.device)}: {plural(len(history.runs), 'run')}, {days}",
                        style="bold"), console)  # fmt: skip
        _print_limits(found, console, own[0] if len(chosen) == 1 else None)
        if len(chosen) == 1:
            _print_one(check, found, own[0], console)
        else:
            _print_rows(check, found, own, console)


def print_check(check: History, console: Console) -> None:
    """Print the new changes, alarms first, and a sentence about the rest and about noise."""
    for found in check.devices:
        history = found.history
        runs, series = len(history.runs), plural(len(history.keys), "series", "series")
        text = f"{printable(history.device)}: {plural(runs, 'run')}, {series}"
        print_line(Text(text, style="bold"), console)
        _print_limits(found, console)
    rows = event_groups(check.new)
    shown = [row for row in rows if not row.first.is_noise]
    for row in shown:
        _print_change(row, console, with_device=len(check.devices) > 1)
    new = sum(len(row.members) for row in shown)
    alarms = sum(row.first.is_alarm for row in shown)
    failed = f", {alarms} of them {'fails' if alarms == 1 else 'fail'}" if new else ""
    noise = len(rows) - len(shown)
    within = f"within the latest {plural(check.latest, 'run')}"
    if new:
        text = f"{plural(new, 'new change')} {within}{failed}"
    elif check.undecided:
        text = f"Undecided: no new change was found {within}, and too little was measured to decide"
    else:
        text = f"No new change {within}"
    text += f"; {noise} judged to be noise" if noise else ""
    older = sum(not one.is_new for one in check.events)
    print_line(Text(f"{text}; {older} older"), console)


def _print_limits(found: HistoryChanges, console: Console, series: int | None = None) -> None:
    for text in filter(None, (undecided_text(found, series), again_text(found))):
        print_line(Text(f"  {printable(text)}"), console, indent=4, fold=True)


def _print_change(row: EventGroup, console: Console, *, with_device: bool = False) -> None:
    first = row.first
    mark, style = ("✗", "red") if first.is_alarm else ("·", "dim") if first.is_noise else ("!", "")
    name = f"{row.name} on {first.found.history.device}" if with_device else row.name
    print_line(Text(f"{mark} {printable(name)}", style=style), console, indent=4, fold=True)
    commit = f", commit {first.run.commit[:12]}" if first.run.commit else ""
    lines = [
        f"{first.cause}  {row.text}",
        f"since run {first.run.id} of {first.run.time[:16]}{commit}",
        *row.reasons,
        *(f"remark: {remark}" for remark in row.remarks),
    ]
    for line in lines:
        print_line(Text(f"    {printable(line)}"), console, indent=6, fold=True)


def _print_rows(
    check: History, found: HistoryChanges, chosen: Sequence[int], console: Console
) -> None:
    rows = [series_row(check, found, series) for series in chosen]
    last = [f"{row.last_ratio:.2f} {row.last_cause}" if row.last_ratio else "" for row in rows]
    room = console.width - (10 + max(6, *map(len, last)) + 4)
    widest = max(len(printable(row.dispatch)) for row in rows)
    name_width = min(widest, max(20, room - 16))
    spark_width = max(8, min(_WIDEST, room - name_width))
    table = RichTable.grid(padding=(0, 1, 0, 0))
    table.add_column(width=name_width, no_wrap=True)
    table.add_column(width=9, justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    heads = ("dispatch", "latest", "trend", "change")
    table.add_row(*(Text(text, style="dim") for text in heads))
    for row, series, change in zip(rows, chosen, last, strict=True):
        values = found.history.median_ns[series].tolist()
        shown = row.outcome if row.outcome != "ok" else format_ns(row.median_ns, even=True)
        table.add_row(
            Text(elide(printable(row.dispatch), name_width)), Text(shown),
            Text(sparkline(values, spark_width)), Text(change),
        )  # fmt: skip
    console.print(table)


def _print_one(check: History, found: HistoryChanges, series: int, console: Console) -> None:
    history = found.history
    print_line(Text(printable(history.short_names[series])), console, fold=True)
    reference = history.references[series]
    if reference is not None:
        print_line(Text(f"compared with {printable(history.short_names[reference])}"), console,
                   fold=True)  # fmt: skip
    changes = check.changes_of(found, series)
    for line in _plot(history.median_ns[series].tolist(), [one.place for one in changes],
                      console.width):  # fmt: skip
        console.print(Text(line), soft_wrap=True)
    for one in changes[-_MOST_SHOWN:]:
        _print_change(EventGroup((one,)), console)
    if not changes:
        console.print("No change was found.")
    for cause in dict.fromkeys(one.change.cause for one in changes if one.change):
        print_line(Text(f"{cause}: {CAUSES[cause]}", style="dim"), console, indent=4)


def _plot(values: Sequence[float], changes: Sequence[int], width: int) -> list[str]:
    """A plot of bars with the scale on the left, and ``^`` under the runs with a change. It does
    not begin at zero."""
    cells = _binned(values, width - 11)
    known = [value for value in cells if math.isfinite(value)]
    if not known:
        return []
    low, high = min(known), max(known)
    margin = (high - low) * 0.05 or 0.01 * high
    low, high = low - margin, high + margin
    steps = _HEIGHT * len(BARS)
    heights = [round((value - low) / (high - low) * steps) if math.isfinite(value) else 0
               for value in cells]  # fmt: skip
    lines = []
    for row in reversed(range(_HEIGHT)):
        label = {_HEIGHT - 1: format_ns(high), 0: format_ns(low)}.get(row, "")
        bars = (min(len(BARS), max(0, height - row * len(BARS))) for height in heights)
        lines.append(f"{label:>9} " + "".join(BARS[bar - 1] if bar else " " for bar in bars))
    places = {run * len(cells) // len(values) for run in changes}
    if places:
        marks = "".join("^" if place in places else " " for place in range(len(cells)))
        lines.append(f"{'change':>9} {marks}".rstrip())
    return lines


def _binned(values: Sequence[float], width: int) -> list[float]:
    """Reduce to at most `width` values: medians of equally many neighbours."""
    count = min(len(values), max(1, width))
    cells = []
    for place in range(count):
        part = values[place * len(values) // count : (place + 1) * len(values) // count]
        known = sorted(value for value in part if math.isfinite(value))
        cells.append(known[len(known) // 2] if known else math.nan)
    return cells


_A_FILE = 50
"""Series whose points are in one file: about 1 MB for a year of nights."""

_TREND_POINTS = 60
"""Points of the small picture of a series on the page."""

_MOST_CHANGES = 300
"""Changes listed on the page, the latest first."""

_MOST_ROWS = 300
"""Rows of the table of the latest run, the largest differences first."""

_USUAL = 20
"""Runs of a level from which its range is shown."""


@written_together()
def write_site(check: History, folder: Path, title: str) -> None:
    """Write the site to `folder`: ``index.html``, and the files of ``points/``.

    Raises:
        RequestError: the folder is a file. StorageError: the site cannot be written.
    """
    for first in range(0, len(series := check.chosen()), _A_FILE):
        points = [_points(*one) for one in series[first : first + _A_FILE]]
        content = f"gemmetryPoints({first // _A_FILE},{embed_json(points)});\n"
        write_atomically(folder / "points" / f"{first // _A_FILE}.js", content.encode())
    write_atomically(folder / "index.html", site_page(check, title).encode())


def site_page(check: History, title: str) -> str:
    """The page, with everything but the points of the series."""
    rows = [row for row in event_groups([*check.lost, *check.events]) if not row.first.is_noise]
    data = {
        "devices": [
            {"name": printable(one.history.device),
             "runs": [[run.time[:16], run.commit[:12], printable(run.label)]
                      for run in one.history.runs]}
            for one in check.devices
        ],
        "series": [_series_data(check, *one) for one in check.chosen()],
        "perFile": _A_FILE,
        "causes": {str(cause): text for cause, text in CAUSES.items()},
    }  # fmt: skip
    return render_page(
        "history.html.j2",
        styles=("report.css", "history.css"),
        scripts=("history.js",),
        data=data,
        title=title,
        version=own_version(),
        health=[_health(check, found) for found in check.devices],
        problems=check.problems,
        latest=check.latest,
        new=[row for row in event_groups(check.new) if not row.first.is_noise],
        changes=rows[:_MOST_CHANGES],
        hidden=max(0, len(rows) - _MOST_CHANGES),
        boards=[_board(check, found) for found in check.devices],
        runs=[_latest_run(check, found) for found in check.devices],
        causes=CAUSES,
    )


def _points(found: HistoryChanges, series: int) -> dict[str, Any]:
    """The runs that measured a series, their medians in ns with four digits, and the ends of their
    intervals as shares of the median in units of 1e-4."""
    history = found.history
    median = history.median_ns[series]
    runs = np.flatnonzero(np.isfinite(median))
    own = median[runs]
    with np.errstate(invalid="ignore"):
        ends = [
            np.nan_to_num(np.round(1e4 * (edge[series][runs] / own - 1))).astype(int).tolist()
            for edge in (history.low_ns, history.high_ns)
        ]
    return {"runs": runs.tolist(), "ns": _rounded(own), "low": ends[0], "high": ends[1]}


def _rounded(values: npt.NDArray[np.float64]) -> list[float]:
    """With four significant digits."""
    scale = 10.0 ** (3 - np.floor(np.log10(values)))
    return [float(value) for value in np.round(values * scale) / scale]


def _series_data(check: History, found: HistoryChanges, series: int) -> dict[str, Any]:
    history = found.history
    median = history.median_ns[series]
    known = median[np.isfinite(median)]
    step = max(1, -(-known.size // _TREND_POINTS))
    trend = [float(np.median(known[at : at + step])) for at in range(0, known.size, step)]
    reference = history.references[series]
    return {
        "name": printable(history.short_names[series]),
        "device": history.device,
        "reference": None if reference is None else printable(history.short_names[reference]),
        "latest": format_ns(float(known[-1]), even=True) if known.size else "–",
        "trend": _rounded(np.array(trend)),
        "changes": [
            {
                "run": one.place,
                "cause": one.cause,
                "title": f"{one.cause} {EventGroup((one,)).text}",
                "reasons": [printable(text) for text in EventGroup((one,)).reasons],
                "remarks": [printable(remark.text) for remark in one.remarks],
            }
            for one in check.changes_of(found, series)
        ],
    }


def _health(check: History, found: HistoryChanges) -> dict[str, Any]:
    """Overview of a device class."""
    history = found.history
    run = history.runs[-1]
    last = len(history.runs) - 1
    outcomes = [history.outcome(series, last) for series in range(len(history.keys))]
    new = [one for one in check.new if one.found is found and not one.is_noise]
    return {
        "device": printable(history.device),
        "runs": plural(len(history.runs), "run"),
        "first": history.runs[0].time[:10],
        "last": run.time[:16].replace("T", " "),
        "label": printable(" ".join(filter(None, (run.commit[:12], run.label)))),
        "ok": sum(outcome == "ok" for outcome in outcomes),
        "failed": sum(
            outcome not in (None, "ok", "unsupported", "skipped") for outcome in outcomes
        ),
        "absent": sum(outcome is None for outcome in outcomes),
        "series": len(history.keys),
        "alarms": sum(one.is_alarm for one in new),
        "new": len(new),
        "undecided": undecided_text(found),
        "again": again_text(found),
    }


def _board(check: History, found: HistoryChanges) -> dict[str, Any]:
    """A row for each problem with the level of each provider's fastest dispatch."""
    history = found.history
    providers = list(dict.fromkeys(key[0] for key in history.keys))
    best: dict[tuple[str, ...], dict[str, float]] = {}
    for series, key in enumerate(history.keys):
        level = check.level_of(found, series)
        if level.size:
            row = best.setdefault((history.operations[series], *key[3:]), {})
            row[key[0]] = min(float(np.median(level)), row.get(key[0], math.inf))
    rows = []
    wins: Counter[str] = Counter()
    for (operation, *rest), levels in best.items():
        fastest = min(levels.values())
        cells: list[dict[str, Any] | None] = [
            {"text": format_ns(levels[name], even=True), "is_best": levels[name] == fastest,
             "ratio": f"{levels[name] / fastest:.2f}×"}
            if name in levels else None
            for name in providers
        ]  # fmt: skip
        rows.append({"operation": printable(operation), "about": " ".join(rest), "cells": cells})
        wins.update(name for name in providers if levels.get(name) == fastest)
    return {"device": printable(history.device), "providers": providers, "rows": rows,
            "wins": {name: wins[name] for name in providers}}  # fmt: skip


def _latest_run(check: History, found: HistoryChanges) -> dict[str, Any]:
    """The latest run next to the level of the runs before it, the largest differences first."""
    history = found.history
    rows: list[dict[str, Any]] = []
    for series, name in enumerate(history.short_names):
        now = float(history.median_ns[series, -1])
        level = check.level_of(found, series)
        before = level[:-1] if math.isfinite(now) else level
        if not math.isfinite(now) or not before.size:
            continue
        middle = float(np.median(before))
        usual = before[-_USUAL:] / middle
        low, high = float(usual.min()), float(usual.max())
        rows.append({
            "name": printable(name), "time": format_ns(now, even=True), "ratio": now / middle,
            "range": f"{low:.3f}–{high:.3f}",
            "is_outside": before.size >= _USUAL and not low <= now / middle <= high,
        })  # fmt: skip
    rows.sort(key=lambda row: -abs(math.log(row["ratio"])))
    run = history.runs[-1]
    return {
        "device": printable(history.device),
        "run": run.id,
        "time": run.time[:16].replace("T", " "),
        "commit": run.commit,
        "label": run.label,
        "rows": rows[:_MOST_ROWS],
        "hidden": max(0, len(rows) - _MOST_ROWS),
        "outside": sum(row["is_outside"] for row in rows),
    }
