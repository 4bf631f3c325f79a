"""Rooflines of launches as one picture, PNG or SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmetry.analysis.counters.comparison import CounterComparison
from gemmetry.domain.errors import RequestError
from gemmetry.reports.counters.roofline import (
    INK,
    RooflineDrawing,
    Side,
    compared_sides,
    roofline_drawing,
)
from gemmetry.reports.counters.text import DiagnosedLaunch
from gemmetry.reports.extras import require
from gemmetry.reports.palette import COLOURS
from gemmetry.reports.pictures import SETTINGS, drawn, set_log_scales
from gemmetry.reports.texts import cut, elide, printable

_DASHES = {"solid": "-", "dash": "--", "dashdot": "-.", "dot": ":"}
_MARKERS = {"circle": "o", "diamond-open": "D", "square-open": "s", "x": "x"}
"""What plotly's names are in matplotlib."""
_INK, _GRID = "#222222", "#e6e6e6"
_WIDTH, _HEIGHT = 9.0, 3.6
_TERA = 1e12
_TITLE_CHARACTERS = 90

Panel = tuple[str, str, Sequence[Side]]
"""Title, a sentence, and what is on its roofline."""


def diagnosis_picture(launches: Sequence[DiagnosedLaunch], format_name: str) -> bytes:
    """The picture of ``gemmetry counters diagnose -o x.png``: a roofline of each kernel, with its
    verdict.

    Raises:
        RequestError: there is nothing to draw, or matplotlib is not installed.
    """
    panels = [
        (one.diagnosis.kernel, f"{one.diagnosis.device}: {one.diagnosis.verdict.claim}".strip(": "),
         [Side("", one.diagnosis.device, one.roofline)] if one.roofline is not None else [])
        for one in launches
    ]  # fmt: skip
    return roofline_picture(panels, format_name)


def comparison_picture(found: CounterComparison, format_name: str) -> bytes:
    """The picture of ``gemmetry counters compare -o x.png``: a roofline of each kernel with both of
    its launches.

    Raises:
        RequestError: there is nothing to draw, or matplotlib is not installed.
    """
    first = found.reports[0].label
    panels = []
    for one in found.kernels:
        ids = [side.diagnosis.verdict.id for side in (one.first, one.second)]
        text = f"{first}: {ids[0]}, {one.label}: {ids[1]}"
        panels.append((one.first.name, text, compared_sides(first, one)))
    return roofline_picture(panels, format_name)


def roofline_picture(panels: Sequence[Panel], format_name: str) -> bytes:
    """The rooflines one below the other, as ``png`` or ``svg``; those without counted operations
    are left out, which the foot notes.

    Raises:
        RequestError: there is nothing to draw, or matplotlib is not installed.
    """
    matplotlib = require("matplotlib", extra="plot")
    figure_module = require("matplotlib.figure", extra="plot")
    drawings = [(*panel[:2], roofline_drawing(panel[2])) for panel in panels]
    shown = [(title, text, found) for title, text, found in drawings if found is not None]
    if not shown:
        raise RequestError(
            "there is no roofline to draw: the operations of no kernel were counted",
            hint="Collect them: gemmetry counters collect --set gemm.",
        )
    with matplotlib.rc_context(SETTINGS):
        size = (_WIDTH, _HEIGHT * len(shown))
        figure = figure_module.Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(shown), 1, squeeze=False)
        for axes, (title, text, drawing) in zip(grid[:, 0], shown, strict=True):
            _draw(axes, drawing)
            axes.set_title(f"{_plain(title)}\n{_plain(text)}", fontsize=10, loc="left", color=_INK)
        if hidden := len(panels) - len(shown):
            figure.supxlabel(f"left out, as operations were not counted: {hidden}", fontsize=8)
        return drawn(figure, format_name)


def _plain(text: str) -> str:
    return elide(cut(printable(text), 4000), _TITLE_CHARACTERS)


def _draw(axes: Any, drawing: RooflineDrawing) -> None:
    for roof in drawing.roofs:
        colour = _INK if roof.tint == INK else COLOURS[roof.tint]
        axes.plot(roof.x, [one / _TERA for one in roof.y], color=colour, label=_plain(roof.name),
                  linestyle=_DASHES[roof.dash], linewidth=1.6)  # fmt: skip
    for launch in drawing.launches:
        style = {
            "marker": _MARKERS[launch.symbol], "markersize": 8, "linestyle": "none",
            "fillstyle": "none" if launch.symbol.endswith("-open") else "full",
        }  # fmt: skip
        for _, tint, place in launch.levels:
            axes.plot(place, launch.rate / _TERA, color=COLOURS[tint], zorder=3, **style)
        axes.plot([], [], color=_INK, label=_plain(launch.name), **style)
    set_log_scales(axes)
    axes.set_xlabel("FLOP per byte")
    axes.set_ylabel("TFLOP/s")
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
