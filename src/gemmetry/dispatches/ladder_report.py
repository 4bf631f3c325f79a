"""The ladder as a picture: the speed of each rung by size, next to the vendor library.

The ladder as tables: one row per rung and problem, one per planned phase and problem.

The ladder on a terminal of 80 columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from rich.console import Console
from rich.text import Text

from gemmetry.dispatches.comparison_report import ItemColumn, column, integer, number, table, text
from gemmetry.dispatches.labels import (
    VERIFICATION_MARKS,
    difference_legend,
    difference_sign,
    operation_title,
    reason_line,
)
from gemmetry.dispatches.labels import half_width_label as format_half_width
from gemmetry.dispatches.ladder import Gain, Ladder, PhaseResult, Rung, library_label
from gemmetry.dispatches.terminal import print_table
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import Column, ColumnType, Direction, Table
from gemmetry.domain.units import format_bytes, format_percent
from gemmetry.results import emit
from gemmetry.results.palette import COLOURS, image
from gemmetry.results.tables import require


def ladder_figure(ladder: Ladder, format_name: str) -> bytes:
    """A line for each problem over the rungs, with the library's speed as a dashed line
    and that of the fastest of its algorithms as a dotted one, as ``png``
    or ``svg``.

    Raises:
        RequestError: no rung was measured, or matplotlib is not installed.
    """
    if all(one.tflops is None for one in ladder.rungs):
        raise RequestError(
            "there is nothing to draw: no rung was measured",
            hint="Without -o, the command prints what became of each.",
        )
    return image([(5.5, partial(_draw, ladder=ladder))], format_name)


def _draw(axes: Any, ladder: Ladder) -> None:
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
        axes.errorbar(numbers, speeds, yerr=errors, color=colour, marker="o", markersize=4,
                      label=title)  # fmt: skip
        for style, libraries in (("--", ladder.libraries), (":", ladder.bests)):
            library = libraries.get(operation)
            if library is not None and library.gflops:
                axes.plot(
                    [numbers[0], numbers[-1]], [library.gflops / 1e3] * 2, color=colour,
                    linestyle=style, linewidth=1, label=f"{library_label(library)}, {title}",
                )  # fmt: skip
    axes.set(yscale="log", ylabel="TFLOP/s")
    ticker = require("matplotlib.ticker", extra="plot")
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    labels = [f"{number} {names[number].replace('_', ' ')}" for number in sorted(names)]
    axes.set_xticks(sorted(names), labels, rotation=30, ha="right")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    axes.set_title("Speed of each rung, with the 95 % interval of its median", fontsize=11)


def _gained(
    of: str, name: str, over: str, verdict: str, texts: tuple[str, str]
) -> tuple[ItemColumn, ...]:
    """The columns of the gain of a rung in the attribute `of`."""

    def part(take: Callable[[Gain], Any]) -> Callable[[Rung], Any]:
        return lambda rung: None if (gain := getattr(rung, of)) is None else take(gain)

    return (
        number(name, texts[0], part(lambda gain: gain.ratio), direction=_HIGHER),
        number(f"{name}_low", "lower end of its interval", part(lambda gain: _ends(gain)[0])),
        number(f"{name}_high", "upper end", part(lambda gain: _ends(gain)[1])),
        text(over, texts[1], part(lambda gain: gain.over)),
        text(verdict, "what the interval shows", part(lambda gain: str(gain.verdict))),
    )


def _ends(gain: Gain) -> tuple[float | None, float | None]:
    return gain.interval or (None, None)


def _state_of(name: str) -> Callable[[Rung], Any]:
    take = attrgetter(f"telemetry.{name}")
    return lambda rung: take(rung.record.measurement) if rung.record.measurement else None


_HIGHER = Direction.HIGHER_IS_BETTER

_RUNGS = (
    text("operation", "", "record.operation"),
    integer("rung", "place on the ladder", "step.number"),
    text("name", "", "step.name"),
    text("adds", "what it does that the rung before does not", "step.adds"),
    text("configuration", "the fastest that was measured", "record.configuration"),
    text("outcome", "", lambda rung: str(rung.record.outcome)),
    text("reason", "why it has no time", lambda rung: rung.record.reason or None),
    text("verification", "", lambda rung: str(rung.record.verdict.status)),
    number("tflops", "speed at the median", unit="TFLOP/s", direction=_HIGHER),
    number("tflops_low", "lower end of the median's 95 % interval",
           lambda rung: (rung.tflops_interval or (None,))[0], unit="TFLOP/s"),
    number("tflops_high", "upper end", lambda rung: (rung.tflops_interval or (None,))[-1],
           unit="TFLOP/s"),
    *_gained("gain", "gain", "gain_over", "gain_verdict",
             ("speed over that of the rung before",
              "the rung before, of those measured on the same problem")),
    *_gained("of_library", "of_library", "library", "library_verdict",
             ("speed over that of the library", "the library's fastest dispatch")),
    *_gained("of_best", "of_best", "best", "best_verdict",
             ("speed over that of the fastest of the library's algorithms",
              "that dispatch, and how many algorithms were timed")),
    number("roofline_fraction", "share of the roof", "record.roofline_fraction", direction=_HIGHER),
    number("sm_clock_hz", "clock during sampling", _state_of("sm_clock_hz"), unit="Hz"),
    number("power_w", "power during sampling", _state_of("power_w"), unit="W"),
    text("accuracy_class", "the strictest class whose bound its errors meet",
         "record.verdict.accuracy_class"),
    integer("registers", "of a thread", "record.facts.registers"),
    integer("spill_bytes", "spilled registers of a thread", "record.facts.spill_bytes", unit="B"),
    integer("shared_memory_bytes", "shared memory of a block", "record.facts.shared_memory_bytes",
            unit="B"),
    column(ColumnType.TEXTS, "marks", "reasons to trust the time less",
           lambda rung: list(rung.record.measurement.marks) if rung.record.measurement else []),
)  # fmt: skip

_PHASES = (
    text("phase", "", "phase.name"),
    text("operation", ""),
    integer("first_rung", "", "phase.first"),
    integer("last_rung", "", "phase.last"),
    number("expected_low", "the gain that was planned", lambda found: found.phase.expected[0]),
    number("expected_high", "", lambda found: found.phase.expected[1]),
    number("gain", "the gain that was measured", "gain.ratio"),
    number("gain_low", "lower end of its interval", lambda found: _ends(found.gain)[0]),
    number("gain_high", "upper end", lambda found: _ends(found.gain)[1]),
    text("verdict", "the interval compared with the plan", lambda found: str(found.expectation)),
)


def ladder_files(ladder: Ladder) -> emit.Result:
    """The rungs and the phases, as tables and as a picture."""
    return emit.Result(
        rows={
            "ladder": lambda: table("ladder", _RUNGS, ladder.rungs),
            "phases": lambda: table("phases", _PHASES, ladder.phases),
        },
        forms={
            suffix: partial(ladder_figure, ladder, suffix.removeprefix("."))
            for suffix in emit.IMAGES
        },
        main="ladder",
    )


_SMALL_SHARE = 0.01

_Cell = Callable[[Rung], str]


def print_ladder(ladder: Ladder, console: Console) -> None:
    """Print the rungs of each problem: their speeds, then what they use. The planned phases follow,
    next to what was measured."""
    for operation, rungs in groupby(ladder.rungs, key=lambda one: one.record.operation):
        _print_problem(operation, list(rungs), ladder, console)
        console.print()
    if ladder.phases:
        console.print(Text("Planned gains and what was measured", "bold"))
        _print_table(_PLANNED, ladder.phases, console)
    gains = [
        gain for one in ladder.rungs for gain in (one.gain, one.of_library, one.of_best) if gain
    ]
    for sign, meaning in difference_legend(gain.verdict for gain in gains):
        console.print(Text(f"{sign} {meaning}", "dim"))
    legend = "[ ] joint 95 % intervals, where they are wider than the last digit"
    console.print(Text(legend, "dim"))


def _print_problem(operation: str, rungs: Sequence[Rung], ladder: Ladder, console: Console) -> None:
    console.print(Text(operation_title(parse_operation(operation)), "bold"))
    for library in (ladder.libraries.get(operation), ladder.bests.get(operation)):
        if library is not None and library.measurement is not None:
            speed = _three((library.gflops or 0.0) / 1e3)
            half = format_half_width(library.measurement)
            console.print(Text(f"  {library_label(library)}: {speed} TFLOP/s {half}", "dim"))
    measured = [one for one in rungs if one.tflops is not None]
    speeds = (_SPEED[:-1], _SHARES) if operation in ladder.bests else (_SPEED,)
    for place, columns in enumerate((*speeds, _USES) if measured else ()):
        if place:
            console.print()
        _print_table(columns, measured, console)
    for one in rungs:
        if one.tflops is None:
            why = reason_line(one.record) or str(one.record.verdict.status)
            console.print(Text(f"  {_name(one).strip()}: {one.record.outcome}: {why}", "red"))


def _print_table(
    columns: Sequence[tuple[str, Callable[[Any], str]]], rows: Iterable[Any], console: Console
) -> None:
    shown = [Column(heading, ColumnType.NUMBER if place else ColumnType.TEXT)
             for place, (heading, _) in enumerate(columns)]  # fmt: skip
    cells = [[cell(one) for _, cell in columns] for one in rows]
    print_table(Table("", tuple(shown), cells), console)


def _size(found: PhaseResult) -> str:
    shape = parse_operation(found.operation).matmul_shape
    return str(shape.m) if len(set(shape[:3])) == 1 else "×".join(map(str, shape[:3]))


_PLANNED: tuple[tuple[str, Callable[[PhaseResult], str]], ...] = (
    ("phase", lambda one: one.phase.name),
    ("rungs", lambda one: f"{one.phase.first} → {one.phase.last}"),
    ("size", _size),
    ("planned", lambda one: "{:g}–{:g}×".format(*one.phase.expected)),
    ("measured", lambda one: _ladder_text_gain(one.gain)),
    ("verdict", lambda one: str(one.expectation)),
)


def _name(rung: Rung) -> str:
    return f"{rung.step.number:2} {rung.step.name.partition('_')[2].replace('_', ' ')}"


def _speed(rung: Rung) -> str:
    assert rung.tflops is not None and rung.record.measurement is not None
    mark = VERIFICATION_MARKS[rung.record.verdict.status]
    return f"{_three(rung.tflops)} {format_half_width(rung.record.measurement)} {mark}"


def _ladder_text_gain(gain: Gain | None) -> str:
    """``1.25× [1.24, 1.26]``."""
    return "" if gain is None else _compared(gain, 1.0, "×")


def _share(gain: Gain | None) -> str:
    """``98.1% [97.9, 98.3]``; a share below 1 % has no interval."""
    if gain is not None and gain.ratio < _SMALL_SHARE:
        gain = replace(gain, interval=None)
    return "" if gain is None else _compared(gain, 100.0, "%")


def _compared(gain: Gain, factor: float, unit: str) -> str:
    """The ratio with its interval, unless both ends look like the ratio, and the verdict's sign."""
    ratio = _three(factor * gain.ratio)
    ends = [_three(factor * end) for end in gain.interval or ()]
    interval = f"[{', '.join(ends)}]" if set(ends) - {ratio} else ""
    return " ".join(filter(None, (f"{ratio}{unit}", interval, difference_sign(gain.verdict))))


def _three(value: float) -> str:
    """Three digits, more before the point where there are more: 0.000123, 5.30, 1,230."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def _state(rung: Rung) -> str:
    found = rung.record.measurement
    clock = found.telemetry.sm_clock_hz if found else None
    power = found.telemetry.power_w if found else None
    shown = (f"{clock / 1e9:.2f} GHz" if clock else "", f"{power:.0f} W" if power else "")
    return " ".join(filter(None, shown)) or "–"


_SPEED: tuple[tuple[str, _Cell], ...] = (
    ("rung", _name),
    ("TFLOP/s", _speed),
    ("over the one before", lambda one: _ladder_text_gain(one.gain)),
    ("of the library", lambda one: _share(one.of_library)),
)
_SHARES: tuple[tuple[str, _Cell], ...] = (
    _SPEED[0],
    _SPEED[-1],
    ("of the best of its algorithms", lambda one: _share(one.of_best)),
)
"""Instead of the last column, where there are two baselines: four columns of intervals are wider
than a terminal."""
_USES: tuple[tuple[str, _Cell], ...] = (
    ("rung", _name),
    ("roof", lambda one: format_percent(one.record.roofline_fraction)),
    ("clock, power", _state),
    ("regs", lambda one: str(one.record.facts.registers or "–")),
    ("shared", lambda one: format_bytes(one.record.facts.shared_memory_bytes)),
    ("accuracy", lambda one: one.record.verdict.accuracy_class or "–"),
)
