"""Static pictures (PNG, SVG) of the figures: roofline, speed per provider, heat map."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gemmetry.analysis.dispatches.baseline import (
    MeanSpeedup,
    baseline_label,
    default_baseline,
    speedups,
)
from gemmetry.analysis.dispatches.marks import find_run_marks
from gemmetry.domain.errors import RequestError
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.units import column_decimals
from gemmetry.reports.dispatches.figures import (
    grid_figures,
    heat_figures,
    is_grid,
    roofline_figures,
    speed_figures,
)
from gemmetry.reports.dispatches.verdict_line import run_state_lines
from gemmetry.reports.extras import require
from gemmetry.reports.labels import format_ratio
from gemmetry.reports.palette import COLOURS, SCALE, provider_places
from gemmetry.reports.pictures import SETTINGS, drawn, set_log_scales

_MARKERS = ("o", "s", "D", "^", "P", "*", "h", "X")
_TITLE_WIDTH = 100
"""Characters of a line across the picture."""

_MAXIMUM_CELLS = 400
"""The most cells with which a heat map shows each cell's number, as in the HTML report."""

_MAXIMUM_BARS = 60
"""Operations of one speed plot: the largest, because a picture cannot be scrolled."""


def render_picture(
    result_set: ResultSet, format_name: str, *, baseline: str | None = None
) -> bytes:
    """All plots of the results, one below the other, as ``png`` or ``svg``.

    Raises:
        RequestError: nothing was measured, or matplotlib is not installed.
        UnknownNameError: no such baseline provider.
    """
    matplotlib = require("matplotlib", extra="plot")
    figure_module = require("matplotlib.figure", extra="plot")
    records = result_set.records
    rooflines, speeds = roofline_figures(records), _shortened(speed_figures(records))
    grids = grid_figures(records)
    heats = [figure for figure in heat_figures(records) if is_grid(figure)]
    if not rooflines:
        raise RequestError(
            "there is nothing to draw: no dispatch was measured",
            hint="gemmetry report shows what became of each.",
        )
    ticker = require("matplotlib.ticker", extra="plot")
    colours = require("matplotlib.colors", extra="plot")
    scale = colours.LinearSegmentedColormap.from_list("scale", SCALE)
    painter = _Painter({record.provider for record in records}, ticker, scale)
    rows = [*((painter.roofline, f, 3.6) for f in rooflines),
            *((painter.speed, f, _bar_height(f)) for f in speeds),
            *((painter.grid, f, 1.6 + 0.22 * len(f["rows"])) for f in grids),
            *((painter.heat, f, 1.4 + 0.35 * len(f["m"])) for f in heats)]  # fmt: skip
    heights = [height for _, _, height in rows]
    with matplotlib.rc_context(SETTINGS):
        figure = figure_module.Figure(figsize=(9, sum(heights) + 0.6), layout="constrained")
        figure.suptitle(_title(result_set, baseline), fontsize=11)
        figure.supxlabel(_foot(records, result_set.remarks), fontsize=9)
        grid = figure.subplots(len(rows), 1, height_ratios=heights, squeeze=False)
        for axes, (draw, data, _) in zip(grid[:, 0], rows, strict=True):
            draw(axes, data)
        return drawn(figure, format_name)


def _title(result_set: ResultSet, baseline: str | None) -> str:
    name = baseline or default_baseline(result_set.records)
    if name is None:
        return result_set.title
    means = speedups(result_set.records, name).means
    listed = ", ".join(f"{provider} {_mean(mean)}" for provider, mean in means.items())
    label = baseline_label(result_set.records, name)
    lines = [
        result_set.title,
        f"geometric mean relative to {label} (operations): {listed}" if listed else "",
    ]
    return "\n".join("\n".join(textwrap.wrap(line, _TITLE_WIDTH)) for line in lines if line)


def _mean(mean: MeanSpeedup) -> str:
    marked = f", {mean.marked} based on marked measurements" if mean.marked else ""
    return f"{format_ratio(mean.ratio)} ({mean.problems}{marked})"


def _foot(records: Sequence[Record], remarks: Sequence[str]) -> str:
    """The marks that most measurements share, and how many have marks of their own and why; "" if
    none is marked."""
    marks = find_run_marks(records)
    lines = run_state_lines(marks, remarks)
    kinds = ", ".join(f"{count} {kind}" for kind, count in marks.counts(records).items())
    if kinds:
        measured = sum(record.measurement is not None for record in records)
        marked = sum(bool(marks.of(record)) for record in records)
        lines.append(f"{marked} of {measured} measurements are marked as less trustworthy: {kinds}")
    return "\n".join(textwrap.fill(line, _TITLE_WIDTH) for line in lines)


def _bar_height(figure: dict[str, Any]) -> float:
    return 1.2 + 0.16 * len(figure["operations"]) * len(figure["series"])


def _shortened(figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            **figure,
            "operations": figure["operations"][-_MAXIMUM_BARS:],
            "series": [
                {**series, "best": series["best"][-_MAXIMUM_BARS:]} for series in figure["series"]
            ],
        }
        for figure in figures
    ]


class _Painter:
    """Draws each kind of figure into matplotlib axes, providers in colours of their own."""

    def __init__(self, providers: Iterable[str], ticker: Any, scale: Any) -> None:
        self._ticker = ticker
        self._scale = scale
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
        axes.set_xlabel("FLOP / byte")
        axes.set_ylabel("GFLOP/s")
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
            errors = [
                [math.nan if b["low"] is None else b["y"] - b["low"] for _, b in shown],
                [math.nan if b["high"] is None else b["high"] - b["y"] for _, b in shown],
            ]
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
        cells = [[math.nan if v is None else v for v in row] for row in figure["share"]]
        image = axes.imshow(cells, aspect="auto", cmap=self._scale, vmin=0, vmax=1)
        if len(figure["rows"]) * len(figure["columns"]) <= _MAXIMUM_CELLS:
            _write_cells(axes, figure["share"], figure["ink"], lambda share: f"{share:.0%}")
        percent = self._ticker.PercentFormatter(1)
        axes.figure.colorbar(image, ax=axes, label="of the fastest", format=percent)
        axes.set_xticks(range(len(figure["columns"])), figure["columns"], fontsize=8)
        axes.set_yticks(range(len(figure["rows"])), figure["rows"], fontsize=8)
        hidden = f" ({figure['hidden']} slower ones left out)" if figure["hidden"] else ""
        axes.set_title(f"Configurations: {figure['label']}{hidden}", loc="left", fontsize=10)

    def heat(self, axes: Any, figure: dict[str, Any]) -> None:
        cells = [[math.nan if v is None else v for v in row] for row in figure["gflops"]]
        image = axes.imshow(cells, aspect="auto", origin="lower", cmap=self._scale)
        if len(figure["m"]) * len(figure["n"]) <= _MAXIMUM_CELLS:
            speeds = [v for row in figure["gflops"] for v in row if v is not None]
            decimals = column_decimals(speeds)
            _write_cells(
                axes, figure["gflops"], figure["ink"], lambda speed: f"{speed:,.{decimals}f}"
            )
        axes.figure.colorbar(image, ax=axes, label="GFLOP/s")
        axes.set_xticks(range(len(figure["n"])), figure["n"])
        axes.set_yticks(range(len(figure["m"])), figure["m"])
        axes.set_xlabel("N")
        axes.set_ylabel("M")
        axes.set_title(f"Best speed: {figure['label']}", loc="left", fontsize=10)


def _write_cells(
    axes: Any,
    rows: Sequence[Sequence[float | None]],
    inks: Sequence[Sequence[str | None]],
    text: Callable[[float], str],
) -> None:
    """Write each cell's number on it, dark on light colours and light on dark ones."""
    for row, cells in enumerate(rows):
        for column, value in enumerate(cells):
            if value is not None:
                axes.text(column, row, text(value), ha="center", va="center", fontsize=8,
                          color=inks[row][column])  # fmt: skip
