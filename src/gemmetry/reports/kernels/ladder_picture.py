"""The ladder as a picture: the speed of each rung by size, next to the vendor library."""

from __future__ import annotations

import io
from itertools import groupby
from typing import Any

from gemmetry.analysis.dispatches.ladder import Ladder, library_label
from gemmetry.domain.errors import RequestError
from gemmetry.domain.names import parse_operation
from gemmetry.reports.extras import require
from gemmetry.reports.labels import operation_title
from gemmetry.reports.palette import COLOURS

SUFFIXES = (".png", ".svg")


def ladder_picture(ladder: Ladder, format_name: str) -> bytes:
    """A line for each problem over the rungs, with the library's speed as a dashed line
    and that of the fastest of its algorithms as a dotted one, as ``png``
    or ``svg``.

    Raises:
        RequestError: no rung was measured, or matplotlib is not installed.
    """
    measured = [one for one in ladder.rungs if one.tflops is not None]
    if not measured:
        raise RequestError(
            "there is nothing to draw: no rung was measured",
            hint="Without -o, the command prints what became of each.",
        )
    matplotlib = require("matplotlib", extra="plot")
    figure_module = require("matplotlib.figure", extra="plot")
    settings = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "gemmetry"}
    with matplotlib.rc_context(settings):
        figure = figure_module.Figure(figsize=(9, 5.5), layout="constrained")
        axes = figure.subplots()
        ticker = require("matplotlib.ticker", extra="plot")
        _draw(axes, ladder, ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        buffer = io.BytesIO()
        metadata = {"Date": None} if format_name == "svg" else None
        figure.savefig(buffer, format=format_name, dpi=120, metadata=metadata)
    return buffer.getvalue()


def _draw(axes: Any, ladder: Ladder, plain_numbers: Any) -> None:
    names: dict[int, str] = {}
    problems = groupby(ladder.rungs, key=lambda one: one.record.operation)
    for place, (operation, found) in enumerate(problems):
        colour = COLOURS[place % len(COLOURS)]
        rungs = [one for one in found if one.tflops is not None]
        if not rungs:
            continue
        names |= {one.step.number: one.step.name.partition("_")[2] for one in rungs}
        numbers = [one.step.number for one in rungs]
        speeds = [one.tflops or 0.0 for one in rungs]
        ends = [one.tflops_interval or (one.tflops or 0.0,) * 2 for one in rungs]
        errors = [
            [max(0.0, speed - low) for (low, _), speed in zip(ends, speeds, strict=True)],
            [max(0.0, high - speed) for (_, high), speed in zip(ends, speeds, strict=True)],
        ]
        title = operation_title(parse_operation(operation))
        axes.errorbar(
            numbers,
            speeds,
            yerr=errors,
            color=colour,
            marker="o",
            markersize=4,
            label=title,
        )
        for style, libraries in (("--", ladder.libraries), (":", ladder.bests)):
            library = libraries.get(operation)
            if library is not None and library.gflops:
                axes.plot(
                    [numbers[0], numbers[-1]], [library.gflops / 1e3] * 2, color=colour,
                    linestyle=style, linewidth=1, label=f"{library_label(library)}, {title}",
                )  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(plain_numbers)
    axes.set_ylabel("TFLOP/s")
    ordered = sorted(names)
    axes.set_xticks(ordered)
    labels = [f"{number} {names[number].replace('_', ' ')}" for number in ordered]
    axes.set_xticklabels(labels, rotation=30, ha="right")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    axes.set_title("Speed of each rung, with the 95 % interval of its median", fontsize=11)
