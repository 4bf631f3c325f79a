"""The five pictures of the sweep analysis document: how the times of GEMMs depend on the threads
and channels of collectives, and on the rank.

They show every instance of every GEMM, as a multiple of the median of the same kernel and shape
alone over the whole sweep, and those next to communication are separate from those alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from gemmetry.documents.sweep_files import (
    RelativeDurations,
    ReportedPoint,
    SweepSamples,
    sweep_samples,
)
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import plural
from gemmetry.results.palette import COLOURS
from gemmetry.results.tables import require
from gemmetry.statistics.intervals import median
from gemmetry.sweeps.gemms import Floats

DPI = 120
MOST_BOXES = 40
"""More categories than this are drawn as a line with a band, since boxes would be too narrow."""

_VIOLIN_SAMPLES = 1000
"""Quantiles that represent a group in a violin, whose outline costs time for each of them."""

_MARGIN = 0.6
"""Reach of the vertical axis beyond the 5th and 95th percentiles, as a share of their range. Single
instances may take a hundred times as long as all others, and would make the boxes flat; those
outside are written at the edge."""

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_UNIT = "time of an instance,\nmultiples of the GEMM's median"
_MARKERS = "osD^P*hX"
_INK, _GREY = "#222222", "#8a8a8a"


class Category(NamedTuple):
    """A position on the horizontal axis."""

    label: str
    alone: Floats
    overlapped: Floats


class _Drawn(NamedTuple):
    """A figure without what all pictures of a sweep have around them."""

    figure: Any
    axes: Any
    """Axes whose vertical axis has a label."""
    title: str
    how: str
    """Meaning of the marks."""


class _Dimension(NamedTuple):
    name: str
    title: str
    axis: str
    categories: list[Category]


def sweep_plots(points: Sequence[ReportedPoint]) -> dict[str, bytes]:
    """Name of the file -> PNG; {} where no GEMM was recorded.

    Raises:
        RequestError: matplotlib is not installed.
    """
    matplotlib = require("matplotlib", extra="plot")
    samples = sweep_samples(points)
    if not samples.ranks:
        return {}
    foot, unit = _foot(points, samples), _UNIT + (" alone" if samples.is_of_alone else "")
    found = {}
    # Texts of a sweep are no mathematics.
    with matplotlib.rc_context({"text.parse_math": False, "font.size": 10}):
        for name, picture in _pictures(points, samples.ranks):
            picture.axes.set_ylabel(unit)
            content = _png(picture.figure, picture.title, f"{foot}\n{picture.how}")
            found[f"variance_{name}.png"] = content
    return found


def _pictures(
    points: Sequence[ReportedPoint], samples: Sequence[RelativeDurations]
) -> Iterator[tuple[str, _Drawn]]:
    dimensions = _dimensions(points, samples)
    for one in dimensions:
        yield f"by_{one.name}_boxplot", _boxes_figure(one)
    yield "violin_combined", _violins_figure(dimensions)
    yield "thread_channel_interaction", _interaction(points, samples)


def _dimensions(
    points: Sequence[ReportedPoint], samples: Sequence[RelativeDurations]
) -> list[_Dimension]:
    """Threads, channels and ranks, each with all values that occur at any point."""
    found = []
    for name, title in (("threads", "threads per block"), ("channels", "channels")):
        values = {getattr(point.configuration, name) for point in points}
        value_of = attrgetter(f"point.configuration.{name}")
        categories = _categories(samples, values, value_of, "not set")
        found.append(_Dimension(name, f"GEMM times by {title} of collectives", name, categories))
    ranks = {one.rank for one in samples}
    categories = _categories(samples, ranks, lambda one: one.rank, "not known")
    return [*found, _Dimension("ranks", "GEMM times by rank", "rank", categories)]


def _order(number: int | None) -> tuple[bool, int]:
    return number is None, number or 0


def _categories(
    samples: Sequence[RelativeDurations],
    values: Collection[int | None],
    value_of: Callable[[RelativeDurations], int | None],
    absent: str,
) -> list[Category]:
    """One for each of `values`, in order; `absent` is the label of None."""
    found = grouped(samples, value_of)
    return [
        Category(
            absent if value is None else str(value),
            _joined(one.alone for one in found.get(value, ())),
            _joined(one.overlapped for one in found.get(value, ())),
        )
        for value in sorted(values, key=_order)
    ]


def _joined(parts: Iterable[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])


def _foot(points: Sequence[ReportedPoint], samples: SweepSamples) -> str:
    present = {one.point.full_config for one in samples.ranks}
    missing = len(points) - len(present)
    is_whole = any(gemm.traced is not None for point in points for gemm in point.gemms)
    what = (
        "instances" if is_whole
        else "times (the shortest, median and longest of each GEMM: workbooks have no others)"
    )  # fmt: skip
    kinds, points_text = plural(samples.kinds, "GEMM"), plural(len(present), "point")
    parts = [f"{samples.count:,} {what} of {kinds} at {points_text}"]
    if missing:
        parts.append(f"no data: {plural(missing, 'point')}")
    if samples.left_out:
        parts.append(f"left out, because never alone: {plural(samples.left_out, 'GEMM')}")
    return "; ".join(parts)


def _figure(width: float, height: float, columns: int = 1) -> tuple[Any, list[Any]]:
    figure_module = require("matplotlib.figure", extra="plot")
    figure = figure_module.Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False, sharey=True)[0])


def _png(figure: Any, title: str, foot: str) -> bytes:
    figure.suptitle(title, x=0.01, ha="left", fontsize=14, color=_INK)
    figure.supxlabel(foot, fontsize=9, color=_GREY)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def _groups(category: Category) -> list[tuple[Floats, str, str]]:
    """(values, colour, name) of the instances alone and of those next to communication."""
    return [
        (category.alone, COLOURS[0], "alone"),
        (category.overlapped, COLOURS[1], "next to communication"),
    ]


def _boxes_figure(dimension: _Dimension) -> _Drawn:
    width = min(16.0, max(8.0, 2.5 + 0.9 * len(dimension.categories)))
    figure, (axes,) = _figure(width, 5.2)
    if len(dimension.categories) > MOST_BOXES:
        _draw_bands(axes, dimension.categories)
        how = "line: median; band: 5th to 95th percentile"
    else:
        _draw_boxes(axes, dimension.categories)
        how = (
            "box: quartiles; line: median; whiskers: 5th to 95th percentile; dots: extremes "
            "(↑: above the picture)"
        )
    _finish(axes, dimension.axis)
    _legend(figure, dimension.categories)
    return _Drawn(figure, axes, dimension.title, how)


def _draw_boxes(axes: Any, categories: Sequence[Category]) -> None:
    top = _limit(axes, categories)
    for place, category in enumerate(categories):
        groups = [group for group in _groups(category) if len(group[0])]
        for offset, (values, colour, _) in zip(_offsets(len(groups)), groups, strict=True):
            low, q1, middle, q3, high = np.quantile(values, _QUANTILES)
            box = {"med": middle, "q1": q1, "q3": q3, "whislo": low, "whishi": high, "fliers": []}
            axes.bxp(
                [box], positions=[place + offset], widths=0.7 / len(groups), showfliers=False,
                patch_artist=True, manage_ticks=False,
                boxprops={"facecolor": colour, "alpha": 0.55, "edgecolor": colour},
                medianprops={"color": _INK, "linewidth": 1.6},
                whiskerprops={"color": colour}, capprops={"color": colour},
            )  # fmt: skip
            extremes = [values.min(), values.max()]
            axes.plot([place + offset] * 2, extremes, ".", color=colour, markersize=4)
            if extremes[1] > top:
                where = {"ha": "center", "va": "top", "transform": axes.get_xaxis_transform()}
                text = f"↑ {extremes[1]:.3g}"
                axes.text(place + offset, 0.99, text, fontsize=8, color=colour, **where)
    _ticks(axes, categories)


def _limit(axes: Any, categories: Sequence[Category]) -> float:
    """Set the range of the vertical axis; its upper end is returned."""
    groups = [values for one in categories for values, _, _ in _groups(one) if len(values)]
    low = min(float(np.quantile(values, _QUANTILES[0])) for values in groups)
    high = max(float(np.quantile(values, _QUANTILES[-1])) for values in groups)
    margin = _MARGIN * (high - low) or 0.1
    top = min(max(float(values.max()) for values in groups) + margin / 4, high + margin)
    bottom = max(min(float(values.min()) for values in groups) - margin / 4, low - margin, 0.0)
    axes.set_ylim(bottom, top)
    return top


def _offsets(count: int) -> list[float]:
    """Centres of `count` boxes or violins that share one place."""
    return [-0.19, 0.19] if count == 2 else [0.0] * count


def _draw_bands(axes: Any, categories: Sequence[Category]) -> None:
    places = np.arange(len(categories))
    for group in range(2):
        values = [_groups(category)[group][0] for category in categories]
        _, colour, _ = _groups(categories[0])[group]
        low, middle, high = _bands(values)
        axes.fill_between(places, low, high, color=colour, alpha=0.25, linewidth=0)
        axes.plot(places, middle, color=colour, linewidth=1.2)
    _ticks(axes, categories)


def _bands(groups: Sequence[Floats]) -> Iterator[Floats]:
    """The 5th, 50th and 95th percentile of each group; NaN where it is empty."""
    for q in (0.05, 0.5, 0.95):
        yield np.array([np.quantile(one, q) if len(one) else np.nan for one in groups])


def _ticks(axes: Any, categories: Sequence[Category]) -> None:
    """Labels, at most twenty, and a note where there are no data."""
    every = -(-len(categories) // 20)
    axes.set_xticks(range(0, len(categories), every), [one.label for one in categories[::every]])
    axes.set_xlim(-0.6, len(categories) - 0.4)
    for place, category in enumerate(categories):
        if not len(category.alone) and not len(category.overlapped):
            axes.text(place, 0.5, "no data", rotation=90, ha="center", va="center", color=_GREY,
                      transform=axes.get_xaxis_transform())  # fmt: skip


def _finish(axes: Any, label: str) -> None:
    axes.set_xlabel(label)
    axes.axhline(1.0, color=_GREY, linewidth=0.8, linestyle="--", zorder=0)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _legend(figure: Any, categories: Sequence[Category]) -> None:
    """Names of the two groups, where there are two."""
    patches = require("matplotlib.patches", extra="plot")
    if not any(len(category.overlapped) for category in categories):
        return
    handles = [
        patches.Patch(facecolor=colour, alpha=0.55, label=name)
        for _, colour, name in _groups(categories[0])
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False, fontsize=9)


def _violins_figure(dimensions: Sequence[_Dimension]) -> _Drawn:
    figure, places = _figure(16.0, 5.6, columns=len(dimensions))
    _limit(places[0], [category for one in dimensions for category in one.categories])
    for axes, dimension in zip(places, dimensions, strict=True):
        if len(dimension.categories) > MOST_BOXES:
            _draw_bands(axes, dimension.categories)
        else:
            _draw_violins(axes, dimension.categories)
        axes.set_title(f"by {dimension.axis}", fontsize=12)
        _finish(axes, dimension.axis)
    _legend(figure, dimensions[0].categories)
    how = "width: number of instances, from the 1st to the 99th percentile; line: median"
    return _Drawn(figure, places[0], "GEMM times by threads, channels and rank", how)


def _draw_violins(axes: Any, categories: Sequence[Category]) -> None:
    for place, category in enumerate(categories):
        groups = [group for group in _groups(category) if len(group[0])]
        for offset, (values, colour, _) in zip(_offsets(len(groups)), groups, strict=True):
            inner = np.quantile(values, np.linspace(0.01, 0.99, min(len(values), _VIOLIN_SAMPLES)))
            middle, width = median(values), 0.75 / len(groups)
            # Equal values, as of a single instance, have no distribution to draw.
            if np.ptp(inner) > 0:
                parts = axes.violinplot([inner], positions=[place + offset], widths=width,
                                        showextrema=False)  # fmt: skip
                for body in parts["bodies"]:
                    body.set(facecolor=colour, alpha=0.55, edgecolor=colour)
            axes.plot([place + offset - width / 3, place + offset + width / 3], [middle] * 2,
                      color=_INK, linewidth=1.6)  # fmt: skip
    _ticks(axes, categories)


def _interaction(points: Sequence[ReportedPoint], samples: Sequence[RelativeDurations]) -> _Drawn:
    """A line for each number of threads, and each value of further axes, over the channels: of the
    instances next to communication where there are any."""
    figure, (axes,) = _figure(10.0, 5.6)
    channels = sorted({point.configuration.channels for point in points}, key=_order)
    lines = sorted({_line(point) for point in points}, key=lambda line: (_order(line[0]), line[1]))
    is_overlapped = any(len(one.overlapped) for one in samples)
    values = grouped(samples, lambda one: (*_line(one.point), one.point.configuration.channels))
    part = attrgetter("overlapped" if is_overlapped else "alone")
    is_missing = False
    for number, line in enumerate(lines):
        shift = (number - (len(lines) - 1) / 2) * 0.5 / max(len(lines), 3)
        colour = COLOURS[number % len(COLOURS)]
        found = [_joined(map(part, values.get((*line, channel), ()))) for channel in channels]
        low, middle, high = _bands(found)
        places = np.arange(len(channels)) + shift
        axes.errorbar(
            places, middle, (middle - low, high - middle), color=colour, capsize=4,
            marker=_MARKERS[number % len(_MARKERS)], markersize=7, linewidth=1.6, elinewidth=1,
            label=_line_label(line),
        )  # fmt: skip
        for place, group in zip(places, found, strict=True):
            if not len(group):
                is_missing = True
                axes.plot(place, 0.03, "x", color=colour, markersize=9,
                          transform=axes.get_xaxis_transform())  # fmt: skip
    axes.set_xticks(range(len(channels)), ["not set" if c is None else str(c) for c in channels])
    _finish(axes, "channels")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    how = "marks: median; bars: 5th to 95th percentile" + ("; ×: no data" if is_missing else "")
    of = " next to communication" if is_overlapped else ""
    return _Drawn(figure, axes, f"GEMM times{of} by threads and channels", how)


def _line(point: ReportedPoint) -> tuple[int | None, str]:
    return point.configuration.threads, point.axes_text


def _line_label(line: tuple[int | None, str]) -> str:
    threads, axes = line
    of_threads = "" if threads is None else plural(threads, "thread")
    return ", ".join(filter(None, (of_threads, axes))) or "all"
