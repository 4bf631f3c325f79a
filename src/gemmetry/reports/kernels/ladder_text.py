"""The ladder on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from gemmetry.analysis.dispatches.ladder import (
    Gain,
    Ladder,
    PhaseResult,
    Rung,
    library_label,
)
from gemmetry.domain.names import parse_operation
from gemmetry.domain.units import format_bytes, format_percent
from gemmetry.reports.labels import (
    VERIFICATION_MARKS,
    difference_legend,
    difference_sign,
    format_half_width,
    operation_title,
    reason_line,
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
            f"{low:g}–{high:g}×", _gain(one.gain), str(one.expectation),
        )  # fmt: skip
    console.print(table)


def _name(rung: Rung) -> str:
    return f"{rung.step.number:2} {rung.step.name.partition('_')[2].replace('_', ' ')}"


def _speed(rung: Rung) -> str:
    assert rung.tflops is not None and rung.record.measurement is not None
    mark = VERIFICATION_MARKS[rung.record.verdict.status]
    return f"{_three(rung.tflops)} {format_half_width(rung.record.measurement)} {mark}"


def _gain(gain: Gain | None) -> str:
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
    ("over the one before", lambda one: _gain(one.gain)),
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
