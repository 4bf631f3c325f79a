"""The ladder as a picture: the speed of each rung by size, next to the vendor library.

The ladder as tables: one row per rung and problem, one per planned phase and problem.

The ladder on a terminal of 80 columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from gemmetry.dispatches.labels import (
    VERIFICATION_MARKS,
    difference_legend,
    difference_sign,
    operation_title,
    reason_line,
)
from gemmetry.dispatches.labels import half_width_label as format_half_width
from gemmetry.dispatches.ladder import Gain, Ladder, PhaseResult, Rung, library_label
from gemmetry.domain.errors import RequestError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.tables import Column, ColumnType, Direction, Table
from gemmetry.domain.units import format_bytes, format_percent
from gemmetry.results import emit
from gemmetry.results.palette import COLOURS, picture
from gemmetry.results.tables import require


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
    return picture([(5.5, partial(_draw, ladder=ladder))], format_name)


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
    ticker = require("matplotlib.ticker", extra="plot")
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylabel("TFLOP/s")
    ordered = sorted(names)
    axes.set_xticks(ordered)
    labels = [f"{number} {names[number].replace('_', ' ')}" for number in ordered]
    axes.set_xticklabels(labels, rotation=30, ha="right")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    axes.set_title("Speed of each rung, with the 95 % interval of its median", fontsize=11)


_NUMBER, _INTEGER = ColumnType.NUMBER, ColumnType.INTEGER
_HIGHER = Direction.HIGHER_IS_BETTER

_RUNGS = (
    Column("operation", required=True),
    Column("rung", _INTEGER, description="place on the ladder", required=True),
    Column("name", required=True),
    Column("adds", description="what it does that the rung before does not", required=True),
    Column("configuration", description="the fastest that was measured", required=True),
    Column("outcome", required=True),
    Column("reason", description="why it has no time"),
    Column("verification", required=True),
    Column("tflops", _NUMBER, "TFLOP/s", "speed at the median", _HIGHER),
    Column("tflops_low", _NUMBER, "TFLOP/s", "lower end of the median's 95 % interval"),
    Column("tflops_high", _NUMBER, "TFLOP/s", "upper end"),
    Column("gain", _NUMBER, description="speed over that of the rung before", direction=_HIGHER),
    Column("gain_low", _NUMBER, description="lower end of its interval"),
    Column("gain_high", _NUMBER, description="upper end"),
    Column("gain_over", description="the rung before, of those measured on the same problem"),
    Column("gain_verdict", description="what the interval shows"),
    Column("of_library", _NUMBER, description="speed over that of the library", direction=_HIGHER),
    Column("of_library_low", _NUMBER, description="lower end of its interval"),
    Column("of_library_high", _NUMBER, description="upper end"),
    Column("library", description="the library's fastest dispatch"),
    Column("library_verdict", description="what the interval shows"),
    Column(
        "of_best",
        _NUMBER,
        description="speed over that of the fastest of the library's algorithms",
        direction=_HIGHER,
    ),
    Column("of_best_low", _NUMBER, description="lower end of its interval"),
    Column("of_best_high", _NUMBER, description="upper end"),
    Column("best", description="that dispatch, and how many algorithms were timed"),
    Column("best_verdict", description="what the interval shows"),
    Column("roofline_fraction", _NUMBER, description="share of the roof", direction=_HIGHER),
    Column("sm_clock_hz", _NUMBER, "Hz", "clock during sampling"),
    Column("power_w", _NUMBER, "W", "power during sampling"),
    Column("accuracy_class", description="the strictest class whose bound its errors meet"),
    Column("registers", _INTEGER, description="of a thread"),
    Column("spill_bytes", _INTEGER, "B", "spilled registers of a thread"),
    Column("shared_memory_bytes", _INTEGER, "B", "shared memory of a block"),
    Column("marks", ColumnType.TEXTS, description="reasons to trust the time less", required=True),
)

_PHASES = (
    Column("phase", required=True),
    Column("operation", required=True),
    Column("first_rung", _INTEGER, required=True),
    Column("last_rung", _INTEGER, required=True),
    Column("expected_low", _NUMBER, description="the gain that was planned", required=True),
    Column("expected_high", _NUMBER, required=True),
    Column("gain", _NUMBER, description="the gain that was measured", required=True),
    Column("gain_low", _NUMBER, description="lower end of its interval"),
    Column("gain_high", _NUMBER, description="upper end"),
    Column("verdict", description="the interval compared with the plan", required=True),
)


def ladder_files(ladder: Ladder) -> emit.Result:
    """The rungs and the phases, as tables and as a picture."""
    return emit.Result(
        rows={
            "ladder": lambda: Table("ladder", _RUNGS, [_rung(one) for one in ladder.rungs]),
            "phases": lambda: Table("phases", _PHASES, [_phase(one) for one in ladder.phases]),
        },
        forms={
            suffix: partial(ladder_picture, ladder, suffix.removeprefix("."))
            for suffix in emit.PICTURES
        },
        main="ladder",
    )


def _rung(rung: Rung) -> tuple[Any, ...]:
    record, facts = rung.record, rung.record.facts
    state = record.measurement.telemetry if record.measurement else None
    return (
        record.operation,
        rung.step.number,
        rung.step.name,
        rung.step.adds,
        record.configuration,
        str(record.outcome),
        record.reason or None,
        str(record.verdict.status),
        rung.tflops,
        *(rung.tflops_interval or (None, None)),
        *_gain(rung.gain),
        *_gain(rung.of_library),
        *_gain(rung.of_best),
        record.roofline_fraction,
        state.sm_clock_hz if state else None,
        state.power_w if state else None,
        record.verdict.accuracy_class,
        facts.registers,
        facts.spill_bytes,
        facts.shared_memory_bytes,
        list(record.measurement.marks) if record.measurement else [],
    )


def _gain(gain: Gain | None) -> tuple[Any, ...]:
    if gain is None:
        return (None,) * 5
    return (gain.ratio, *(gain.interval or (None, None)), gain.over, str(gain.verdict))


def _phase(found: PhaseResult) -> tuple[Any, ...]:
    phase = found.phase
    return (
        phase.name,
        found.operation,
        phase.first,
        phase.last,
        *phase.expected,
        found.gain.ratio,
        *(found.gain.interval or (None, None)),
        str(found.expectation),
    )


_SMALL_SHARE = 0.01

_Cell = Callable[[Rung], str]


def print_ladder(ladder: Ladder, console: Console) -> None:
    """Print the rungs of each problem, their speeds first and then what they use, and the planned
    phases next to what was measured."""
    for operation, rungs in groupby(ladder.rungs, key=lambda one: one.record.operation):
        found = list(rungs)
        _print_problem(operation, found, ladder, console)
        console.print()
    if ladder.phases:
        _print_phases(ladder.phases, console)
    gains = [
        gain for one in ladder.rungs for gain in (one.gain, one.of_library, one.of_best) if gain
    ]
    for sign, meaning in difference_legend(gain.verdict for gain in gains):
        console.print(Text(f"{sign} {meaning}", "dim"))
    console.print(
        Text(
            "[ ] joint 95 % intervals, where they are wider than the last digit",
            "dim",
        )
    )


def _print_problem(operation: str, rungs: Sequence[Rung], ladder: Ladder, console: Console) -> None:
    title = operation_title(parse_operation(operation))
    console.print(Text(title, "bold"))
    for library in (ladder.libraries.get(operation), ladder.bests.get(operation)):
        if library is not None and library.measurement is not None:
            speed = _three((library.gflops or 0.0) / 1e3)
            half = format_half_width(library.measurement)
            console.print(Text(f"  {library_label(library)}: {speed} TFLOP/s {half}", "dim"))
    measured = [one for one in rungs if one.tflops is not None]
    if measured:
        if operation in ladder.bests:
            _print_table(_SPEED[:-1], measured, console)
            console.print()
            _print_table(_SHARES, measured, console)
        else:
            _print_table(_SPEED, measured, console)
        console.print()
        _print_table(_USES, measured, console)
    for one in rungs:
        if one.tflops is None:
            why = reason_line(one.record) or str(one.record.verdict.status)
            console.print(Text(f"  {_name(one).strip()}: {one.record.outcome}: {why}", "red"))


def _print_table(
    columns: Sequence[tuple[str, _Cell]], rungs: Sequence[Rung], console: Console
) -> None:
    table = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for place, (heading, _) in enumerate(columns):
        side: JustifyMethod = "right" if place else "left"
        table.add_column(heading, justify=side, overflow="fold")
    for one in rungs:
        table.add_row(*(Text(cell(one)) for _, cell in columns))
    console.print(table)


def _print_phases(phases: Iterable[PhaseResult], console: Console) -> None:
    console.print(Text("Planned gains and what was measured", "bold"))
    table = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("phase", "rungs", "size", "planned", "measured", ""):
        table.add_column(heading, justify="right" if heading in ("planned", "measured") else "left")
    for one in phases:
        low, high = one.phase.expected
        shape = parse_operation(one.operation).matmul_shape
        size = str(shape.m) if len(set(shape[:3])) == 1 else "×".join(map(str, shape[:3]))
        table.add_row(
            one.phase.name, f"{one.phase.first} → {one.phase.last}", size,
            f"{low:g}–{high:g}×", _ladder_text_gain(one.gain), str(one.expectation),
        )  # fmt: skip
    console.print(table)


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
    """``98.1% [97.9, 98.3]``; of less than 1 % the interval says nothing more."""
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
