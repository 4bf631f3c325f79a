"""The lines and points of a roofline with one or more launches, for pages and for pictures.

Each launch is shown against the roofs of its own GPU at its own clock; roofs that agree are one
line. A level of memory has a colour, which its slope and the points at its intensity share; where
launches have different roofs, the second slope of a level has a colour of its own.

Rooflines of launches as one picture, PNG or SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from gemmetry.counters.comparison import CounterComparison, KernelComparison
from gemmetry.counters.roofline import LaunchRoofline
from gemmetry.counters.text import DiagnosedLaunch
from gemmetry.domain.errors import RequestError
from gemmetry.domain.units import format_bytes, format_gflops
from gemmetry.results.pages import Figure, text_of
from gemmetry.results.palette import COLOURS, SETTINGS, drawn, set_log_scales
from gemmetry.results.tables import PICTURES, require
from gemmetry.results.texts import cut, elide, printable

_SAME_ROOF = 0.05
"""Roofs that differ by less share a line: those of caches follow the clock of a launch, and on a
logarithmic axis such lines would lie on each other."""

_LEVELS = ("device memory", "L2 cache", "shared memory")
_TINTS = ((0, 5), (1, 4), (2, 6))
"""Places in the palette of each level: of its first slope, and of all others."""
_ROOFLINE_DASHES = ("solid", "dash", "dashdot")
"""Of the slopes of each level, as plotly calls them."""
_CEILINGS = {"datasheet": "solid", "at its clock": "dot"}
"""What a peak of arithmetic is called, and its dash."""
INK = -1
"""Stands for the colour of the text in the place of one of the palette."""
_GREY = 7
"""Place in the palette of ceilings after the first of their kind, which has the text's colour."""
_SYMBOLS = ("circle", "diamond-open", "square-open", "x")
_MARGIN = 4.0
"""How many times beyond the points and ridges the horizontal axis reaches."""


class Side(NamedTuple):
    """A launch on a roofline."""

    label: str
    """The report's; "" where there is only one."""
    device: str
    roofline: LaunchRoofline


@dataclass(slots=True)
class Roof:
    """A slope, in bytes per second, or a ceiling, in operations per second."""

    name: str
    value: float
    labels: list[str]
    """Of the launches below it."""
    level: int | None = None
    """Place of the level of memory; None: a ceiling."""
    tint: int = INK
    """Place in the palette, or :data:`INK`."""
    dash: str = "solid"
    x: tuple[float, float] = (0.0, 0.0)

    @property
    def y(self) -> tuple[float, float]:
        """Operations per second at both ends."""
        low, high = (1.0, 1.0) if self.level is None else self.x
        return self.value * low, self.value * high


@dataclass(frozen=True, slots=True)
class LaunchPoints:
    """A launch: a point for each level of memory, all at its operations per second."""

    name: str
    symbol: str
    rate: float
    levels: list[tuple[str, int, float]]
    """Name, place of the colour in the palette, and operations per byte."""


@dataclass(frozen=True, slots=True)
class RooflineDrawing:
    """Everything on one roofline."""

    roofs: Sequence[Roof]
    launches: Sequence[LaunchPoints]


def roofline_drawing(sides: Sequence[Side]) -> RooflineDrawing | None:
    """What to draw of `sides`; None where no operations of any of them were counted."""
    known = [one for one in sides if one.roofline.operations_per_s]
    places = [level.intensity for one in known for level in one.roofline.levels if level.intensity]
    if not places:
        return None
    several = len({one.device for one in known}) > 1
    roofs: list[Roof] = []
    launches = []
    for number, one in enumerate(known):
        own = [_add(roofs, roof) for roof in _roofs_of(one)]
        tints = {roof.level: roof.tint for roof in own if roof.level is not None}
        rate = one.roofline.operations_per_s or 0.0
        gpu = f" on {one.device}" if several and one.device else ""
        launches.append(LaunchPoints(
            f"{_prefix([one.label])}{one.roofline.path or 'operations'}{gpu}, {_flops(rate)}",
            _SYMBOLS[number % len(_SYMBOLS)],
            rate,
            [(level.name, tints.get(place := _LEVELS.index(level.name), _TINTS[place][0]),
              level.intensity) for level in one.roofline.levels if level.intensity],
        ))  # fmt: skip
    _finish(roofs, places, [one.label for one in known])
    return RooflineDrawing(roofs, launches)


def compared_sides(first: str, one: KernelComparison) -> list[Side]:
    """The launches of a kernel in the report `first` and in the one that it is compared with."""
    return [
        Side(label, side.diagnosis.device, side.roofline)
        for label, side in ((first, one.first), (one.label, one.second))
        if side.roofline is not None
    ]


def _roofs_of(side: Side) -> Iterator[Roof]:
    for level in side.roofline.levels:
        if level.peak_bytes_per_s:
            place = _LEVELS.index(level.name)
            yield Roof(level.name, level.peak_bytes_per_s, [side.label], place, _TINTS[place][0],
                       _ROOFLINE_DASHES[place])  # fmt: skip
    peaks = (side.roofline.datasheet_peak, side.roofline.clock_peak)
    for (words, dash), peak in zip(_CEILINGS.items(), peaks, strict=True):
        if peak:
            yield Roof(f"{side.roofline.path or 'peak'} {words}", peak, [side.label], dash=dash)


def _add(roofs: list[Roof], new: Roof) -> Roof:
    """Add a roof, or where it is there already only its label; the roof in the list is returned."""
    alike = [one for one in roofs if (one.level, one.dash) == (new.level, new.dash)]
    for one in alike:
        if one.name == new.name and abs(new.value - one.value) <= _SAME_ROOF * one.value:
            one.labels += new.labels
            return one
    if alike:
        new.tint = _GREY if new.level is None else _TINTS[new.level][1]
    roofs.append(new)
    return new


def _finish(roofs: Sequence[Roof], places: Sequence[float], labels: Sequence[str]) -> None:
    """Give roofs their ends, and the names of a legend."""
    ridges = {id(one): ridge for one in roofs if (ridge := _ridge(one, roofs)) is not None}
    low, high = min(places) / _MARGIN, max([*places, *ridges.values()]) * _MARGIN
    for one in roofs:
        is_slope = one.level is not None
        one.x = (low, ridges.get(id(one), high))
        value = f"{format_bytes(one.value)}/s" if is_slope else _flops(one.value)
        prefix = "" if len(one.labels) == len(labels) else _prefix(one.labels)
        one.name = f"{prefix}{one.name}, {value}"


def _ridge(slope: Roof, roofs: Sequence[Roof]) -> float | None:
    """Where a slope meets the highest ceiling of its launches; None of a ceiling, or without."""
    if slope.level is None:
        return None
    tops = [one.value for one in roofs
            if one.level is None and not set(slope.labels).isdisjoint(one.labels)]  # fmt: skip
    return max(tops) / slope.value if tops else None


def _prefix(labels: Sequence[str]) -> str:
    return f"{', '.join(labels)}: " if any(labels) else ""


def _flops(rate: float) -> str:
    return format_gflops(rate / 1e9)


def roofline_figure(sides: Sequence[Side]) -> Figure | None:
    """The roofline of a page; None where no operations were counted."""
    drawing = roofline_drawing(sides)
    if drawing is None:
        return None
    traces = [_line(one) for one in drawing.roofs]
    for launch in drawing.launches:
        edge = {"line": {"width": 2}} if launch.symbol.endswith("-open") else {}
        marker = {"size": 11, "symbol": launch.symbol, **edge}
        # The colours are those of the levels, so that the legend shows the symbol alone.
        traces.append({
            "type": "scatter", "mode": "markers", "ink": True, "name": text_of(launch.name),
            "x": [None], "y": [None], "marker": marker, "legendgroup": launch.name,
        })  # fmt: skip
        traces += [{
            "type": "scatter", "mode": "markers", "tint": tint, "showlegend": False,
            "x": [place], "y": [launch.rate / 1e12], "name": text_of(launch.name),
            "legendgroup": launch.name, "marker": marker,
            "hovertemplate": f"{text_of(launch.name)}<br>{name}: %{{x:.3g}} FLOP per byte"
            "<extra></extra>",
        } for name, tint, place in launch.levels]  # fmt: skip
    return {
        "traces": traces,
        "layout": {"xaxis": {"title": "FLOP per byte", "type": "log"},
                   "yaxis": {"title": "TFLOP/s", "type": "log"}},
        "height": 480, "narrow_legend": True, "wide": True,
    }  # fmt: skip


def _line(roof: Roof) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": text_of(roof.name), "ink": roof.tint == INK,
        "tint": roof.tint, "line": {"dash": roof.dash}, "x": list(roof.x),
        "y": [value / 1e12 for value in roof.y], "hoverinfo": "name",
    }  # fmt: skip


_DASHES = {"solid": "-", "dash": "--", "dashdot": "-.", "dot": ":"}
_MARKERS = {"circle": "o", "diamond-open": "D", "square-open": "s", "x": "x"}
"""What plotly's names are in matplotlib."""
_INK, _GRID = "#222222", "#e6e6e6"
_WIDTH, _HEIGHT = 9.0, 3.6
_TERA = 1e12
_TITLE_CHARACTERS = 90

Panel = tuple[str, str, Sequence[Side]]
"""Title, a sentence, and what is on its roofline."""


def diagnosis_panels(launches: Sequence[DiagnosedLaunch]) -> list[Panel]:
    """A roofline of each kernel, with its verdict."""
    return [
        (one.diagnosis.kernel, f"{one.diagnosis.device}: {one.diagnosis.verdict.claim}".strip(": "),
         [Side("", one.diagnosis.device, one.roofline)] if one.roofline is not None else [])
        for one in launches
    ]  # fmt: skip


def comparison_panels(found: CounterComparison) -> list[Panel]:
    """A roofline of each kernel with both of its launches."""
    first = found.reports[0].label
    panels: list[Panel] = []
    for one in found.kernels:
        ids = [side.diagnosis.verdict.id for side in one.sides]
        text = f"{first}: {ids[0]}, {one.label}: {ids[1]}"
        panels.append((one.first.name, text, compared_sides(first, one)))
    return panels


def picture_forms(panels: Callable[[], Sequence[Panel]]) -> dict[str, Callable[[], bytes]]:
    """Suffix of a picture -> what draws the rooflines in that format."""
    return {
        suffix: partial(lambda name: roofline_picture(panels(), name), suffix[1:])
        for suffix in PICTURES
    }


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
