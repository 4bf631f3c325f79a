"""The figures of a run, described once as plain JSON values. The page draws them by its script, and
a picture (PNG, SVG) by matplotlib.

Speeds are in 10⁹ FLOP/s, durations in ns, intensities in FLOP/byte.
"""

from __future__ import annotations

import math
import textwrap
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from gemmetry.dispatches.analysis import (
    RunMarks,
    fastest,
    fastest_per_provider,
    find_run_marks,
    group_by_problem,
    is_of_baseline,
    mark_kind,
    rank,
)
from gemmetry.dispatches.labels import (
    Overview,
    dtype_label,
    means_label,
    modifiers_label,
    operation_label,
    shape_label,
    shorten_configurations,
)
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import RequestError
from gemmetry.domain.operation import OperationKind
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import column_decimals
from gemmetry.providers.base import traits_of
from gemmetry.results.palette import (
    COLOURS,
    SCALE,
    colour_at,
    image,
    ink_on,
    set_log_scales,
)
from gemmetry.results.tables import require
from gemmetry.results.texts import printable

_SAMPLED_RECORDS = 400
_SAMPLES_SHOWN = 300
"""Limit of the HTML report both for dispatches with raw samples and for samples of each, so that
the page of a large experiment still opens. The experiment's folder has all samples."""


_ROOFLINE_POINTS = 2000
"""Points that a browser draws without a pause. With more, only each provider's best dispatch of
each operation is drawn."""

_CELLS_OF_ONE_K = 4
"""A heat map with fewer cells shows no pattern; one over all K may."""

_FILLED = 0.5
"""Share of a heat map's cells that must hold a number; with fewer, the gaps dominate."""

_GRID_ROWS = 60
_GRID_COLUMNS = 40
"""The most configurations and operations with which a grid is legible."""

_PICTURE_WIDTH, _PAGE_WIDTH = 26, 96
"""Characters of a configuration's name next to a grid, in a picture and on a page; a page breaks
long names into lines."""

_Cells = dict[tuple[int, int], list[Record]]
"""(M, N) -> the records of these sizes."""


def figures_of(
    records: Sequence[Record], samples: Callable[[Record], Sequence[float]], baseline: str
) -> dict[str, Any]:
    """Every figure: ``roofline``, ``speed`` (with `baseline`), ``grid``, ``heat`` (where the sizes
    form a grid) and ``samples``."""
    return {
        "roofline": roofline_figures(records),
        "speed": speed_figures(records, baseline=baseline),
        "grid": grid_figures(records, width=_PAGE_WIDTH),
        "heat": [figure for figure in heat_figures(records) if is_grid(figure)],
        "samples": sample_figures(records, samples),
    }


def roofline_figures(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One figure per target and dtypes: a point for every measured dispatch (if ``thinned``, for
    each provider's best of each operation), and the roof.

    The roof follows from the stored shares: speed / share is the speed that the roofline allows at
    the point's intensity. The peak is the largest of these speeds, and the slope the largest of
    their quotients by the intensity, so that the roof is exact at every point.
    """
    figures = []
    for (target, dtypes), group in by_dtypes(records).items():
        if thinned := len(group) > _ROOFLINE_POINTS:
            group = [best for records in group_by_problem(group).values()
                     for best in fastest_per_provider(records).values()]  # fmt: skip
        points = [_roofline_point(record) for record in group]
        figures.append({
            "label": f"{dtypes} on {target}", "dtypes": dtypes, "target": target,
            "points": points,
            "thinned": thinned,
            "roof": _roof([(p["x"], p["allowed"]) for p in points if p["allowed"]]),
            "source": next((r.roofline_source for r in group if r.roofline_source), ""),
        })  # fmt: skip
    return figures


def _roofline_point(record: Record) -> dict[str, Any]:
    share = record.roofline_fraction
    speed = record.gflops or 0.0
    return {
        "provider": record.provider,
        "name": record.dispatch,
        "shape": shape_label(parse_operation(record.operation)),
        "configuration": record.configuration,
        "x": record.flops / record.bytes if record.bytes else 0.0,
        "y": speed,
        "share": share,
        "allowed": speed / share if share else None,
        "verification": str(record.verdict.status),
    }


def _roof(allowed: Sequence[tuple[float, float]]) -> list[list[float]]:
    """The roof's corners (intensity, speed), as far as the points determine them."""
    if not allowed:
        return []
    peak = max(speed for _, speed in allowed)
    slope = max(speed / intensity for intensity, speed in allowed if intensity > 0)
    ridge = peak / slope
    low, high = min(x for x, _ in allowed), max(x for x, _ in allowed)
    if all(speed >= peak * 0.999 for _, speed in allowed):  # The slope is not known.
        return [[low / 1.5, peak], [high * 1.5, peak]]
    low, high = min(low, ridge) / 2, max(high, ridge) * 2
    return [[low, slope * low], [ridge, peak], [high, peak]]


def speed_figures(records: Sequence[Record], *, baseline: str = "") -> list[dict[str, Any]]:
    """One figure per target and dtypes: each provider's best dispatch of each operation, with the
    interval of its median as speeds; ``reference`` is the best of `baseline` (a provider, or
    ``provider:configuration``)."""
    figures = []
    marks = find_run_marks(records)
    for (target, dtypes), group in by_dtypes(records).items():
        ordered = _labelled_problems(group)
        providers = sorted({record.provider for record in group})
        bests = [fastest_per_provider(records) for _, records in ordered]
        bases = [fastest(r for r in group if is_of_baseline(r, baseline)) for _, group in ordered]
        figures.append({
            "label": f"{dtypes} on {target}",
            "dtypes": dtypes,
            "operations": _distinct([label for label, _ in ordered]),
            "series": [
                {"provider": name, "best": [_speed(best.get(name), marks) for best in bests]}
                for name in providers
            ],
            "reference": [_speed(base, marks) for base in bases],
        })  # fmt: skip
    return figures


def _labelled_problems(group: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    """The problems with their labels and records, those with the fewest FLOPs first."""
    problems = sorted(group_by_problem(group).items(), key=lambda item: item[1][0].flops)
    several = len({device for (_, device, _, _), _ in problems}) > 1
    return [
        (operation_label(parse_operation(name)) + (f" · {device}" if several else ""), records)
        for (_, device, name, _), records in problems
    ]


def _speed(record: Record | None, marks: RunMarks) -> dict[str, Any] | None:
    if record is None or record.measurement is None or record.gflops is None:
        return None
    m = record.measurement
    return {
        "y": record.gflops,
        "low": record.flops / m.ci_high_ns if m.ci_high_ns else None,
        "high": record.flops / m.ci_low_ns if m.ci_low_ns else None,
        "ns": m.median_ns,
        "configuration": record.configuration,
        "marks": [mark_kind(mark) for mark in marks.of(record)],
    }


def heat_figures(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Best speed over M × N: one figure for each K and each combination of everything else that
    defines an operation (target, dtypes, layouts, batch, modifiers), those with the most cells
    first. Where no K has enough cells, one figure covers all K. Convolutions have none."""
    groups: dict[str, dict[int, _Cells]] = {}
    for record in records:
        operation = parse_operation(record.operation)
        if record.measurement is None or operation.kind is OperationKind.CONV2D:
            continue
        shape, s = operation.matmul_shape, operation.signature
        parts = [f"{dtype_label(s)} {s.layout_pair}", modifiers_label(s)]
        if operation.kind is not OperationKind.MATMUL:
            parts.append(f"{operation.kind}, batch {shape.batch}")
        label = ", ".join([*(part for part in parts if part), record.device or record.target])
        cells = groups.setdefault(label, {}).setdefault(shape.k, {})
        cells.setdefault((shape.m, shape.n), []).append(record)
    figures = []
    for label, by_k in groups.items():
        figures += [_heat_figure(f"K = {k}, {label}", cells) for k, cells in by_k.items()]
        if len(by_k) > 1 and max(map(len, by_k.values())) < _CELLS_OF_ONE_K:
            joined: _Cells = {}
            for place, found in chain.from_iterable(cells.items() for cells in by_k.values()):
                joined.setdefault(place, []).extend(found)
            figures.append(_heat_figure(f"any K, {label}", joined))
    return sorted(figures, key=lambda figure: -int(figure["cells"]))


def is_grid(figure: Mapping[str, Any]) -> bool:
    """Whether a heat map over M × N has enough cells, and few enough gaps, to be useful."""
    cells, places = int(figure["cells"]), len(figure["m"]) * len(figure["n"])
    return cells >= max(_CELLS_OF_ONE_K, _FILLED * places)


def grid_figures(records: Sequence[Record], *, width: int = _PICTURE_WIDTH) -> list[dict[str, Any]]:
    """Configuration × operation: one figure per target and dtypes, at most 40 operations each.

    ``share`` is each dispatch's speed divided by that of the operation's fastest, None where it was
    not measured, and ``ink`` the colour of text on its cell. Rows are the configurations of all
    providers, those with the largest mean share first, at most 60 (``hidden`` counts the rest).
    ``names`` are their full names; ``rows`` have at most `width` characters of each configuration,
    no two alike. Combinations with a single configuration have no figure.
    """
    figures = []
    for (target, dtypes), group in by_dtypes(records).items():
        ordered = _labelled_problems(group)
        for start in range(0, len(ordered), _GRID_COLUMNS):
            part = ordered[start : start + _GRID_COLUMNS]
            labels, of_labels = zip(*part, strict=True)
            found = _grid_figure(labels, of_labels, width)
            if len(found["rows"]) < 2:
                continue
            shown = f", operations {start + 1} to {start + len(part)} of {len(ordered)}"
            suffix = shown if len(ordered) > _GRID_COLUMNS else ""
            figures.append({"label": f"{dtypes} on {target}{suffix}", **found})
    return figures


def _grid_figure(
    labels: Sequence[str], groups: Sequence[Sequence[Record]], width: int
) -> dict[str, Any]:
    cells: dict[tuple[str, str], dict[int, Record]] = {}
    for column, group in enumerate(groups):
        for record in group:
            row = cells.setdefault((record.provider, record.configuration), {})
            row[column] = min(record, row.get(column, record), key=rank)
    least = [min(map(rank, group)) for group in groups]
    mean = {
        key: sum(least[column] / rank(record) for column, record in row.items()) / len(row)
        for key, row in cells.items()
    }
    ordered = sorted(cells, key=lambda key: -mean[key])
    shown = ordered[:_GRID_ROWS]
    short = shorten_configurations([name for _, name in shown], _PICTURE_WIDTH, most=width)
    times = [[rank(row[column]) if column in row else None for column in range(len(labels))]
             for row in (cells[key] for key in shown)]  # fmt: skip
    shares = [[best / ns if ns else None for best, ns in zip(least, row, strict=True)]
              for row in times]  # fmt: skip
    return {
        "rows": [f"{provider} {short[name]}" for provider, name in shown],
        "names": [printable(f"{provider} {name}") for provider, name in shown],
        "columns": _distinct(labels),
        "share": shares,
        "ink": _inks(shares, 0.0, 1.0),
        "ns": times,
        "hidden": len(ordered) - len(shown),
    }


def _heat_figure(label: str, cells: _Cells) -> dict[str, Any]:
    rows, columns = sorted({m for m, _ in cells}), sorted({n for _, n in cells})
    bests = [[fastest(cells.get((m, n), ())) for n in columns] for m in rows]
    speeds = [[None if best is None else best.gflops for best in row] for row in bests]
    known = [speed for row in speeds for speed in row if speed is not None]
    return {
        "label": label,
        "cells": len(cells),
        "m": rows,
        "n": columns,
        "gflops": speeds,
        "ink": _inks(speeds, min(known, default=0.0), max(known, default=1.0)),
        "best": [
            ["" if best is None else f"{best.provider} {best.configuration}" for best in row]
            for row in bests
        ],
    }


def _inks(
    rows: Sequence[Sequence[float | None]], least: float, most: float
) -> list[list[str | None]]:
    """The legible text colour on each cell of a heat map with a scale from `least` to `most`."""
    span = most - least or 1.0
    return [
        [None if value is None else ink_on(colour_at((value - least) / span)) for value in row]
        for row in rows
    ]


def sample_figures(
    records: Sequence[Record], samples: Callable[[Record], Sequence[float]]
) -> list[dict[str, Any]]:
    """The raw samples of the measured dispatches that have any, in the order they were taken."""
    figures: list[dict[str, Any]] = []
    for record in records:
        if record.measurement is None or len(figures) == _SAMPLED_RECORDS:
            continue
        taken = list(samples(record))
        if not taken:
            continue
        step = -(-len(taken) // _SAMPLES_SHOWN)
        m = record.measurement
        figures.append({
            "name": f"{record.provider}:{record.dispatch}", "provider": record.provider,
            "operation": record.operation, "ns": [round(value, 1) for value in taken[::step]],
            "taken": len(taken), "median": m.median_ns, "low": m.ci_low_ns, "high": m.ci_high_ns,
        })  # fmt: skip
    return figures


def by_dtypes(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """Measured records by target and label of the dtypes."""
    return grouped(
        (record for record in records if record.gflops is not None),
        lambda one: (one.target, dtype_label(parse_operation(one.operation).signature)),
    )


def _distinct(labels: Sequence[str]) -> list[str]:
    """The labels, with a number added to repeated ones, because an axis merges equal labels."""
    seen: Counter[str] = Counter()
    result = []
    for label in labels:
        seen[label] += 1
        result.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return result


def provider_places(providers: Iterable[str]) -> dict[str, int]:
    """Each provider's place in the palette, which follows from its name alone, so that it has the
    same colour in every report. Only a provider of another package whose place is taken moves to a
    free one.

    With more providers than colours, places continue after the last: colours repeat, with other
    markers.
    """
    names = sorted(set(providers))
    places = {name: place for name in names if (place := traits_of(name).colour) is not None}
    for name in names:
        if name in places:
            continue
        place = zlib.crc32(name.encode()) % len(COLOURS)
        taken = set(places.values())
        while place in taken:
            place = (place + 1) % len(COLOURS) if len(taken) < len(COLOURS) else place + 1
        places[name] = place
    return places


_MARKERS = ("o", "s", "D", "^", "P", "*", "h", "X")
_TITLE_WIDTH = 100
"""Characters of a line across the picture."""

_MAXIMUM_CELLS = 400
"""The most cells with which a heat map shows each cell's number, as in the HTML report."""

_MAXIMUM_BARS = 60
"""Operations of one speed plot: the largest, because a picture cannot be scrolled."""


def render_figure(result_set: ResultSet, format_name: str, *, baseline: str | None = None) -> bytes:
    """All plots of the results, one below the other, as ``png`` or ``svg``.

    Raises:
        RequestError: nothing was measured, or matplotlib is not installed.
        UnknownNameError: no such baseline provider.
    """
    records, overview = result_set.records, Overview(result_set, baseline)
    rooflines, speeds = roofline_figures(records), speed_figures(records)
    for speed in speeds:
        speed["operations"] = speed["operations"][-_MAXIMUM_BARS:]
        for series in speed["series"]:
            series["best"] = series["best"][-_MAXIMUM_BARS:]
    if not rooflines:
        raise RequestError(
            "there is nothing to draw: no dispatch was measured",
            hint="gemmetry report shows what became of each.",
        )
    painter = _Painter({record.provider for record in records})
    heats = [figure for figure in heat_figures(records) if is_grid(figure)]
    panels = [
        *((3.6, partial(painter.roofline, figure=one)) for one in rooflines),
        *((1.2 + 0.16 * len(one["operations"]) * len(one["series"]),
           partial(painter.speed, figure=one)) for one in speeds),
        *((1.6 + 0.22 * len(one["rows"]), partial(painter.grid, figure=one))
          for one in grid_figures(records)),
        *((1.4 + 0.35 * len(one["m"]), partial(painter.heat, figure=one)) for one in heats),
    ]  # fmt: skip
    notes = filter(None, (*overview.run_states, overview.less_trustworthy))
    foot = "\n".join(textwrap.fill(line, _TITLE_WIDTH) for line in notes)
    return image(panels, format_name, title=_title(overview), foot=foot)


def _title(overview: Overview) -> str:
    means = overview.relative.means if overview.relative else {}
    listed = means_label(means.items(), "marked measurements")
    about = f"geometric mean relative to {overview.baseline_label} (operations): {listed}"
    lines = [overview.results.title, about if listed else ""]
    return "\n".join(textwrap.fill(line, _TITLE_WIDTH) for line in lines if line)


class _Painter:
    """Draws each kind of figure into matplotlib axes, providers in colours of their own."""

    def __init__(self, providers: Iterable[str]) -> None:
        colours = require("matplotlib.colors", extra="plot")
        self._scale = colours.LinearSegmentedColormap.from_list("scale", SCALE)
        self._places = provider_places(providers)

    def _colour(self, provider: str) -> str:
        return COLOURS[self._places[provider] % len(COLOURS)]

    def _marker(self, provider: str) -> str:
        # Where colours repeat, markers differ.
        place = self._places[provider]
        return _MARKERS[(place + place // len(COLOURS)) % len(_MARKERS)]

    def roofline(self, axes: Any, figure: dict[str, Any]) -> None:
        if figure["roof"]:
            xs, ys = zip(*figure["roof"], strict=True)
            axes.plot(xs, ys, color="#555555", linewidth=1.5, label="roof")
        for provider in sorted(self._places):
            points = [point for point in figure["points"] if point["provider"] == provider]
            if points:
                axes.scatter([p["x"] for p in points], [p["y"] for p in points], label=provider,
                             color=self._colour(provider), marker=self._marker(provider),
                             s=28, alpha=0.8)  # fmt: skip
        set_log_scales(axes)
        axes.set(xlabel="FLOP / byte", ylabel="GFLOP/s")
        axes.set_title(f"Roofline: {figure['label']}", loc="left", fontsize=10)
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize=8)

    def speed(self, axes: Any, figure: dict[str, Any]) -> None:
        operations, count = figure["operations"], len(figure["series"])
        height = 0.8 / count
        for index, series in enumerate(figure["series"]):
            shown = [(row, b) for row, b in enumerate(series["best"]) if b is not None]
            ys = [row + (index - (count - 1) / 2) * height for row, _ in shown]
            values = [b["y"] for _, b in shown]
            errors = [[math.nan if b[end] is None else abs(b["y"] - b[end]) for _, b in shown]
                      for end in ("low", "high")]  # fmt: skip
            axes.barh(ys, values, height=height, xerr=errors, label=series["provider"],
                      color=self._colour(series["provider"]),
                      error_kw={"elinewidth": 0.9, "capsize": 2})  # fmt: skip
        axes.set_yticks(range(len(operations)), operations, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("GFLOP/s (95 % interval of the median)")
        axes.set_title(f"Speed: {figure['label']}", loc="left", fontsize=10)
        axes.grid(visible=True, axis="x", alpha=0.3)
        axes.legend(fontsize=8)

    def grid(self, axes: Any, figure: dict[str, Any]) -> None:
        percent = require("matplotlib.ticker", extra="plot").PercentFormatter(1)
        self._cells(axes, figure["share"], figure["ink"], "{:.0%}", vmin=0, vmax=1,
                    bar={"label": "of the fastest", "format": percent})  # fmt: skip
        axes.set_xticks(range(len(figure["columns"])), figure["columns"], fontsize=8)
        axes.set_yticks(range(len(figure["rows"])), figure["rows"], fontsize=8)
        hidden = f" ({figure['hidden']} slower ones left out)" if figure["hidden"] else ""
        axes.set_title(f"Configurations: {figure['label']}{hidden}", loc="left", fontsize=10)

    def heat(self, axes: Any, figure: dict[str, Any]) -> None:
        decimals = column_decimals(v for row in figure["gflops"] for v in row if v is not None)
        self._cells(axes, figure["gflops"], figure["ink"], f"{{:,.{decimals}f}}", origin="lower",
                    bar={"label": "GFLOP/s"})  # fmt: skip
        axes.set_xticks(range(len(figure["n"])), figure["n"])
        axes.set_yticks(range(len(figure["m"])), figure["m"])
        axes.set(xlabel="N", ylabel="M")
        axes.set_title(f"Best speed: {figure['label']}", loc="left", fontsize=10)

    def _cells(
        self, axes: Any, rows: Sequence[Sequence[float | None]],
        inks: Sequence[Sequence[str | None]], form: str, *, bar: Mapping[str, Any], **how: Any,
    ) -> None:  # fmt: skip
        """Draw a heat map with its colour bar. Where there is room, each cell has its number, dark
        on light colours and light on dark ones."""
        values = [[math.nan if value is None else value for value in row] for row in rows]
        image = axes.imshow(values, aspect="auto", cmap=self._scale, **how)
        if len(rows) * len(rows[0]) <= _MAXIMUM_CELLS:
            for row, cells in enumerate(rows):
                for column, value in enumerate(cells):
                    if value is not None:
                        axes.text(column, row, form.format(value), ha="center", va="center",
                                  fontsize=8, color=inks[row][column])  # fmt: skip
        axes.figure.colorbar(image, ax=axes, **bar)
