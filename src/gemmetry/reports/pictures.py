"""What the static pictures have in common: texts that stay texts, logarithmic axes, and files that
are the same in every run."""

from __future__ import annotations

import io
import math
from typing import Any

from gemmetry.reports.extras import require

SETTINGS = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "gemmetry"}
"""Of matplotlib: texts of results are neither mathematics nor markup; an SVG keeps them as text."""

_DPI = 120

_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9))
"""Ticks of a decade, from few to many."""

_FEWEST_TICKS = 4


def set_log_scales(axes: Any) -> None:
    """Make both axes logarithmic, with plain numbers at round values."""
    ticker = require("matplotlib.ticker", extra="plot")
    axes.set_xscale("log")
    axes.set_yscale("log")
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
