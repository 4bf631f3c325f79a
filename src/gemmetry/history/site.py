"""The history as a static folder: one page, and the points of its series in scripts that the page
loads when they are looked at. Nothing comes from the network, and no server is needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmetry.domain.units import counted, format_ns
from gemmetry.hardware.detect import own_version
from gemmetry.history.changes import CAUSES, HistoryChanges
from gemmetry.history.checking import ChangeEvent, HistoryCheck
from gemmetry.history.rows import EventGroup, again_text, event_groups, undecided_text
from gemmetry.results.emit import write_atomically, written_together
from gemmetry.results.pages import embed_json, render_page
from gemmetry.results.texts import printable

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
def write_site(check: HistoryCheck, folder: Path, title: str) -> None:
    """Write the site to `folder`: ``index.html``, and the files of ``points/``.

    Raises:
        RequestError: the folder is a file. StorageError: it cannot be written.
    """
    series = [
        (found, number) for found in check.devices for number in range(len(found.history.keys))
    ]
    for first in range(0, len(series), _A_FILE):
        points = [_points(*one) for one in series[first : first + _A_FILE]]
        content = f"gemmetryPoints({first // _A_FILE},{embed_json(points)});\n"
        write_atomically(folder / "points" / f"{first // _A_FILE}.js", content.encode())
    write_atomically(folder / "index.html", site_page(check, title).encode())


def site_page(check: HistoryCheck, title: str) -> str:
    """The page, with everything but the points of the series."""
    changes = _changes_by_series(check)
    rows = [row for row in event_groups([*check.lost, *check.changes]) if not row.is_noise]
    data = {
        "devices": [_device_data(found) for found in check.devices],
        "series": [
            _series_data(found, number, changes.get((id(found), number), []))
            for found in check.devices
            for number in range(len(found.history.keys))
        ],
        "perFile": _A_FILE,
        "causes": {str(cause): text for cause, text in CAUSES.items()},
    }
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
        new=[row for row in event_groups(check.new) if not row.is_noise],
        changes=rows[:_MOST_CHANGES],
        hidden=max(0, len(rows) - _MOST_CHANGES),
        boards=[_board(found, changes) for found in check.devices],
        runs=[_latest_run(found, changes) for found in check.devices],
        causes=CAUSES,
    )


def _changes_by_series(check: HistoryCheck) -> dict[tuple[int, int], list[ChangeEvent]]:
    """(device class, series) -> its changes in the order of time."""
    found: dict[tuple[int, int], list[ChangeEvent]] = {}
    for one in sorted(check.changes, key=lambda one: one.place):
        found.setdefault((id(one.found), one.series), []).append(one)
    return found


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
    if not values.size:
        return []
    scale = 10.0 ** (3 - np.floor(np.log10(values)))
    return [float(value) for value in np.round(values * scale) / scale]


def _device_data(found: HistoryChanges) -> dict[str, Any]:
    return {
        "name": printable(found.history.device),
        "runs": [
            [run.time[:16], run.commit[:12], printable(run.label)] for run in found.history.runs
        ],
    }


def _series_data(
    found: HistoryChanges, series: int, changes: Sequence[ChangeEvent]
) -> dict[str, Any]:
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
            for one in changes
        ],
    }


def _health(check: HistoryCheck, found: HistoryChanges) -> dict[str, Any]:
    """What a first look answers about a device class."""
    history = found.history
    run = history.runs[-1]
    last = len(history.runs) - 1
    outcomes = [history.outcome(series, last) for series in range(len(history.keys))]
    new = [one for one in check.new if one.found is found and not one.is_noise]
    return {
        "device": printable(history.device),
        "runs": counted(len(history.runs), "run"),
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


def _level(
    found: HistoryChanges, series: int, changes: Mapping[tuple[int, int], list[ChangeEvent]]
) -> npt.NDArray[np.float64]:
    """The medians since the last change that is not noise."""
    own = [one for one in changes.get((id(found), series), []) if not one.is_noise]
    return found.history.level_of(series, own[-1].place if own else 0)


def _board(
    found: HistoryChanges, changes: Mapping[tuple[int, int], list[ChangeEvent]]
) -> dict[str, Any]:
    """A row for each problem with the level of each provider's fastest dispatch."""
    history = found.history
    providers = list(dict.fromkeys(key[0] for key in history.keys))
    best: dict[tuple[str, ...], dict[str, float]] = {}
    for series, key in enumerate(history.keys):
        level = _level(found, series, changes)
        if level.size:
            row = best.setdefault((history.operations[series], *key[3:]), {})
            value = float(np.median(level))
            row[key[0]] = min(value, row.get(key[0], math.inf))
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


def _latest_run(
    found: HistoryChanges, changes: Mapping[tuple[int, int], list[ChangeEvent]]
) -> dict[str, Any]:
    """The latest run next to the level of the runs before it, the largest differences first."""
    history = found.history
    rows: list[dict[str, Any]] = []
    for series, name in enumerate(history.short_names):
        now = float(history.median_ns[series, -1])
        level = _level(found, series, changes)
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
