"""The colours of every picture: those of series, one scale for shares and speeds, and a colour for
text that is legible on it. PNG, SVG and HTML all use them.

What the static pictures have in common: texts that stay texts, logarithmic axes, and files that
are the same in every run.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any

from gemmetry.results.tables import require

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f")
"""Colours for a light background. The first six are from Okabe and Ito's palette, whose colours
people with any colour vision can distinguish (https://jfly.uni-koeln.de/color/)."""

DARK_COLOURS = (
    "#4da3e0", "#ff8c4a", "#2cc295", "#e79cc4", "#f5b942", "#8fd3f4", "#b79be0", "#aab2bb",
)  # fmt: skip
"""The same hues, lighter, for a dark background."""

SCALE = ("#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58",
         "#b5de2b", "#fde725")  # fmt: skip
"""Ten equidistant colours of viridis, from least to most. Its lightness grows evenly, so that it
can also be read without colours (https://bids.github.io/colormap/)."""

DARK_INK, LIGHT_INK = "#000000", "#ffffff"


def colour_at(share: float) -> str:
    """The colour of `share` (0 to 1) on :data:`SCALE`, interpolated linearly between two colours,
    as in plotly and matplotlib."""
    place = min(max(share, 0.0), 1.0) * (len(SCALE) - 1)
    left = min(int(place), len(SCALE) - 2)
    pairs = zip(_channels(SCALE[left]), _channels(SCALE[left + 1]), strict=True)
    mixed = (round(a + (b - a) * (place - left)) for a, b in pairs)
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def ink_on(colour: str) -> str:
    """Black or white, whichever has more contrast on `colour`: at least 4.58 on any colour, above
    the 4.5 that success criterion 1.4.3 of WCAG 2.1 requires for text."""
    return max((DARK_INK, LIGHT_INK), key=lambda ink: contrast(ink, colour))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours (``#rrggbb``), 1 to 21, as WCAG 2.1 defines it
    (https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance of sRGB, https://www.w3.org/TR/WCAG21/#dfn-relative-luminance."""
    red, green, blue = (_linear(channel / 255) for channel in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


SETTINGS = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "gemmetry"}
"""Settings of matplotlib: texts of results are neither mathematics nor markup, and stay text in an
SVG."""

_DPI = 120
_WIDTH, _TITLE_HEIGHT = 9.0, 0.6

_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9))
"""Ticks of a decade, from few to many."""

_FEWEST_TICKS = 4


def set_log_scales(axes: Any) -> None:
    """Make both axes logarithmic, with plain numbers at round values."""
    ticker = require("matplotlib.ticker", extra="plot")
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(ticker.FixedLocator(log_ticks(*axis.get_view_interval())))
        axis.set_minor_locator(ticker.NullLocator())
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`, at least four if there are that many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in _STEPS:
        found = (step * 10.0**decade for decade in decades for step in steps)
        ticks = [tick for tick in found if low <= tick <= high]
        if len(ticks) >= _FEWEST_TICKS:
            break
    return ticks


def image(
    panels: Sequence[tuple[float, Callable[[Any], object]]],
    format_name: str,
    *,
    title: str = "",
    foot: str = "",
) -> bytes:
    """Panels one below the other, as ``png`` or ``svg``.

    Args:
        panels: the height of each in inches, and what draws it into axes.

    Raises:
        RequestError: matplotlib is not installed.
    """
    matplotlib = require("matplotlib", extra="plot")
    figure_module = require("matplotlib.figure", extra="plot")
    heights = [height for height, _ in panels]
    with matplotlib.rc_context(SETTINGS):
        size = (_WIDTH, sum(heights) + _TITLE_HEIGHT * bool(title))
        figure = figure_module.Figure(figsize=size, layout="constrained")
        if title:
            figure.suptitle(title, fontsize=11)
        if foot:
            figure.supxlabel(foot, fontsize=9)
        grid = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)
        for axes, (_, draw) in zip(grid[:, 0], panels, strict=True):
            draw(axes)
        return drawn(figure, format_name)


def drawn(figure: Any, format_name: str) -> bytes:
    """The picture as ``png`` or ``svg``.

    It is laid out first, and the layout rounded to four digits: the solver's last bits differ from
    run to run, and an SVG derives names from them.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position([round(number, 4) for number in axes.get_position().bounds])
    buffer = io.BytesIO()
    metadata = {"Date": None} if format_name == "svg" else None
    figure.savefig(buffer, format=format_name, dpi=_DPI, metadata=metadata)
    return buffer.getvalue()
