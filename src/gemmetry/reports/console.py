"""Results on a terminal: one group an operation, readable at 80 columns."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gemmetry.analysis.baseline import (
    Speedups,
    default_baseline,
    fastest,
    group_by_problem,
)
from gemmetry.analysis.within import judged_speedups
from gemmetry.domain import units
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.outcome import Outcome
from gemmetry.domain.record import Record
from gemmetry.domain.resultset import ResultSet
from gemmetry.reports.dispatch_profiler import format_block
from gemmetry.reports.grouped import print_rows
from gemmetry.reports.labels import (
    VERIFICATION_LEGEND,
    VERIFICATION_MARKS,
    format_half_width,
    format_ratio,
    mark_counts,
    operation_title,
    outcome_counts,
    reason_line,
    shorten_configurations,
    unapplied_checks,
)
from gemmetry.reports.tables import cell_text, select_columns, table_rows, tag_names
from gemmetry.reports.texts import printable
from gemmetry.statistics.comparison import Difference

__all__ = ["format_block", "print_table"]

_MAXIMUM_FAILURES = 20
"""Failures told in full; the rest is counted, and `show` and every file format have them all."""

_MAXIMUM_BASELINE = 14
"""Characters of the baseline's heading; ``×iree:default`` has 13."""

_NOT_RUN = (Outcome.UNSUPPORTED, Outcome.SKIPPED)


def print_table(
    result_set: ResultSet,
    console: Console,
    *,
    columns: Sequence[str] | None = None,
    baseline: str | None = None,
) -> None:
    """Print the results to `console`.

    Without `columns`: a group for each operation with its dispatches, fastest first, then what
    failed and why. `baseline` names the provider, or provider:configuration, of the ×
    column (default: torch or numpy, if one was measured beside others). With `columns` (names of
    docs/columns.md or presets): one plain table of these, grouped by operation if it is too wide.

    Raises:
        UnknownNameError: no such column, or `baseline` is no provider of these results.
    """
    if columns:
        _print_columns(result_set, console, columns)
        return
    records = result_set.records
    name = baseline or default_baseline(records)
    relative = judged_speedups(result_set, name) if name else None
    _print_groups(records, console, relative)
    _print_failures(records, console)
    _print_footer(records, console, relative, result_set.path)


def _print_columns(result_set: ResultSet, console: Console, names: Sequence[str]) -> None:
    columns = select_columns(names, tags=tag_names(result_set.records))
    rows = [
        [
            column.column.text(value) if column.column else str(cell_text(value) or "")
            for column, value in zip(columns, values, strict=True)
        ]
        for values in table_rows(result_set.records, columns)
    ]
    print_rows([column.label for column in columns], rows, console)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Widths and headings that all groups share, so that their columns line up."""

    widths: tuple[int, ...]
    headings: tuple[str, ...]
    speed_divisor: float
    """1 for GFLOP/s, 1000 for TFLOP/s."""
    baseline: str


def _layout(records: Sequence[Record], console: Console, relative: Speedups | None) -> _Layout:
    top = max((record.gflops or 0.0 for record in records), default=0.0)
    unit, divisor = ("TFLOP/s", 1000.0) if top >= 10_000 else ("GFLOP/s", 1.0)
    provider = min(12, max((len(record.provider) for record in records), default=8))
    baseline = relative.baseline if relative else ""
    has_roof = any(record.roofline_fraction is not None for record in records)
    headings = [
        "", "provider", "configuration", "time", "±", unit, "roof" if has_roof else "",
        f"×{baseline}"[:_MAXIMUM_BASELINE] if baseline else "", "",
    ]  # fmt: skip
    interval = max((len(_interval(record)) for record in records), default=0)
    widths = [1, max(8, provider), 0, 8, max(6, interval), 8, 6 if has_roof else 0,
              max(6, len(headings[7])) if baseline else 0, 1]  # fmt: skip
    used = sum(widths) + sum(1 for width in widths if width)
    longest = max((len(record.configuration) for record in records), default=13)
    widths[2] = max(13, min(longest, console.width - used - 1))
    return _Layout(tuple(widths), tuple(headings), divisor, baseline)


def _grid(layout: _Layout) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    for index, (width, heading) in enumerate(zip(layout.widths, layout.headings, strict=True)):
        if width:
            right = index in (3, 4, 5, 6, 7)
            grid.add_column(
                heading, width=width, no_wrap=True, justify="right" if right else "left"
            )
    return grid


def _print_groups(records: Sequence[Record], console: Console, relative: Speedups | None) -> None:
    measured = [record for record in records if record.measurement is not None]
    unmeasured = [r for r in records if r.measurement is None and r.outcome is Outcome.OK]
    shown = [*measured, *unmeasured]
    if not shown:
        return
    layout = _layout(shown, console, relative)
    header = _grid(layout)
    header.add_row(*(
        Text(heading, style="dim")
        for heading, width in zip(layout.headings, layout.widths, strict=True)
        if width
    ))  # fmt: skip
    console.print(header)
    devices = {(record.target, record.device) for record in shown}
    for (target, device, name, _), group in group_by_problem(shown).items():
        operation, _ = split_dispatch_name(name)
        title = Text(operation_title(operation), style="bold", no_wrap=True, overflow="ellipsis")
        if len(devices) > 1:
            title.append(f"  on {device or target}", style="dim")
        console.print(title)
        console.print(_group_rows(group, layout, relative))


def _group_rows(group: Sequence[Record], layout: _Layout, relative: Speedups | None) -> Table:
    grid = _grid(layout)
    short = shorten_configurations([r.configuration for r in group], layout.widths[2])
    best = fastest(group)
    ordered = sorted(
        group, key=lambda r: r.measurement.median_ns if r.measurement else float("inf")
    )
    for record in ordered:
        m = record.measurement
        speed = "–" if record.gflops is None else _number(record.gflops / layout.speed_divisor)
        cells = [
            "▸" if record is best else "",
            record.provider,
            short[record.configuration],
            "–" if m is None else units.format_ns(m.median_ns),
            _interval(record),
            speed,
            "" if record.roofline_fraction is None else f"{record.roofline_fraction:.0%}",
            "" if relative is None else _ratio(record, relative),
            VERIFICATION_MARKS[record.verdict.status],
        ]
        style = "bold green" if record is best else ""
        grid.add_row(*(
            Text(printable(cell), style=style, no_wrap=True, overflow="ellipsis")
            for cell, width in zip(cells, layout.widths, strict=True)
            if width
        ))  # fmt: skip
    return grid


def _interval(record: Record) -> str:
    """``±0.5%``, with ``!`` where the measurement has marks."""
    m = record.measurement
    return "" if m is None else format_half_width(m) + ("!" if m.marks else "")


def _ratio(record: Record, relative: Speedups) -> str:
    text = format_ratio(relative.of(record))
    return f"{text}≈" if relative.difference(record) is Difference.NONE_SHOWN else text


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _print_failures(records: Sequence[Record], console: Console) -> None:
    failed = [r for r in records if r.outcome is not Outcome.OK and r.outcome not in _NOT_RUN]
    if failed:
        console.print()
        console.print(Text(f"Not ok: {len(failed)}", style="bold red"))
    for record in failed[:_MAXIMUM_FAILURES]:
        name = printable(f"{record.provider}:{record.dispatch}")
        line = Text(f"  {record.outcome}", style="red")
        line.append(f"  {name}", style="default")
        _print_line(line, console, indent=4)
        _print_line(Text(f"    {reason_line(record)}"), console, indent=4)
        if record.reproduce:
            _print_command(printable(record.reproduce), console)
    if len(failed) > _MAXIMUM_FAILURES:
        console.print(Text(f"  … and {len(failed) - _MAXIMUM_FAILURES} more"))
    not_run = Counter(
        (record.outcome, record.provider, reason_line(record))
        for record in records
        if record.outcome in _NOT_RUN
    )
    if not_run:
        console.print()
        console.print(Text("Not run", style="bold"))
    for (outcome, provider, reason), count in not_run.most_common(_MAXIMUM_FAILURES):
        _print_line(Text(f"  {count} × {provider} {outcome}: {reason}"), console, indent=4)
    if len(not_run) > _MAXIMUM_FAILURES:
        console.print(Text(f"  … and {len(not_run) - _MAXIMUM_FAILURES} more reasons"))


def _print_line(text: Text, console: Console, *, indent: int) -> None:
    """Within the width of a terminal; whole elsewhere, where lines are searched."""
    if not console.is_terminal:
        console.print(text, soft_wrap=True)
        return
    lead = len(text.plain) - len(text.plain.lstrip())
    first, *rest = text[lead:].wrap(console, max(1, console.width - indent))
    console.print(Text(" " * lead) + first, no_wrap=True)
    for line in rest:
        console.print(Text(" " * indent) + line, no_wrap=True)


def _print_command(command: str, console: Console) -> None:
    """With backslashes at the ends of lines on a terminal, so that a copy still is one command."""
    lines = [""]
    for word in command.split(" "):
        is_full = len(lines[-1]) + len(word) + 9 > console.width  # indent, "$ ", " \\" and a space
        if console.is_terminal and lines[-1] and is_full:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    text = " \\\n      ".join(lines)
    console.print(Text(f"    $ {text}", style="dim"), soft_wrap=True)


def _print_verified(records: Sequence[Record], console: Console) -> None:
    """How accurate the results are, and which checks this provider or device left undone."""
    classes = Counter(
        record.verdict.accuracy_class
        for record in records
        if record.outcome is Outcome.OK and record.verdict.accuracy_class
    )
    if classes:
        text = ", ".join(f"{count} {name}" for name, count in classes.most_common())
        console.print(Text(f"Accuracy: {text}"))
    for reason, checks in unapplied_checks(records).items():
        text = ", ".join(f"{check} on {count}" for check, count in checks.items())
        console.print(Text(printable(f"Could not check {text}: {reason}")))


def _print_footer(
    records: Sequence[Record], console: Console, relative: Speedups | None, folder: str
) -> None:
    console.print()
    if relative is not None and relative.means:
        means = ", ".join(
            f"{provider} {format_ratio(mean.ratio)} ({mean.problems}"
            + (f", {mean.marked} resting on rows marked !)" if mean.marked else ")")
            for provider, mean in sorted(relative.means.items())
        )
        best = "" if ":" in relative.baseline else "best "
        console.print(Text(
            f"Geometric mean of best against {best}{relative.baseline} (operations): {means}"
        ))  # fmt: skip
    noisy = sum(1 for r in records if r.measurement is not None and r.measurement.marks)
    if noisy:
        kinds = ", ".join(f"{n} {printable(kind)}" for kind, n in mark_counts(records).items())
        place = shlex.quote(printable(folder)) if folder else "EXPERIMENT"
        command = f"gemmetry show {place} DISPATCH"
        console.print(Text(f"! {noisy} less trustworthy: {kinds}; `{command}` tells each"))
    _print_verified(records, console)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcome_counts(records).items())
    total = f"{len(records)} dispatch{'' if len(records) == 1 else 'es'}"
    console.print(Text(f"{total}: {counts}" if counts else total))
    if any(record.outcome is Outcome.OK for record in records):
        legend = f"▸ fastest   {VERIFICATION_LEGEND}   ! see marks"
        if relative is not None and Difference.NONE_SHOWN in relative.verdicts.values():
            legend += "\n≈ no difference from the baseline shown"
        console.print(Text(legend, style="dim"))
