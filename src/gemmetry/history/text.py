"""The history on a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gemmetry.domain.units import counted, format_ns
from gemmetry.history.changes import CAUSES, HistoryChanges
from gemmetry.history.checking import HistoryCheck
from gemmetry.history.rows import (
    EventGroup,
    again_text,
    changes_of,
    event_groups,
    series_row,
    undecided_text,
)
from gemmetry.results.lines import print_line
from gemmetry.results.texts import elide, printable

BARS = "▁▂▃▄▅▆▇█"
_GAP = "·"
"""In a sparkline: a run that did not measure the dispatch."""

_MOST_SHOWN = 20
"""Changes that are not new, on a terminal."""

_HEIGHT = 8
"""Lines of a plot."""

_WIDEST = 40
"""Characters of a sparkline."""


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as a line of bars at most `width` long, from their smallest to their largest; each
    bar is the median of the runs that it stands for."""
    cells = _binned(values, width)
    known = [value for value in cells if math.isfinite(value)]
    if not known:
        return _GAP * len(cells)
    low, high = min(known), max(known)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(
        BARS[round((value - low) * scale)] if math.isfinite(value) else _GAP for value in cells
    )


def print_history(
    check: HistoryCheck, chosen: Sequence[tuple[HistoryChanges, int]], console: Console
) -> None:
    """Print a row for each of the `chosen` series; a single one with a plot and its changes."""
    for found in check.devices:
        own = [series for one, series in chosen if one is found]
        if not own:
            continue
        history = found.history
        days = f"{history.runs[0].time[:10]} to {history.runs[-1].time[:10]}"
        print_line(Text(f"{printable(history.device)}: {counted(len(history.runs), 'run')}, {days}",
                        style="bold"), console)  # fmt: skip
        _print_limits(found, console, own[0] if len(chosen) == 1 else None)
        if len(chosen) == 1:
            _print_one(check, found, own[0], console)
        else:
            _print_rows(check, found, own, console)


def print_check(check: HistoryCheck, console: Console) -> None:
    """Print the new changes, alarms first, and a sentence about the rest and about noise."""
    for found in check.devices:
        history = found.history
        text = (
            f"{printable(history.device)}: {counted(len(history.runs), 'run')}, "
            f"{counted(len(history.keys), 'series', 'series')}"
        )
        print_line(Text(text, style="bold"), console)
        _print_limits(found, console)
    rows = event_groups(check.new)
    shown = [row for row in rows if not row.is_noise]
    for row in shown:
        _print_change(row, console, row.device if len(check.devices) > 1 else "")
    new = sum(len(row.members) for row in shown)
    alarms = sum(row.is_alarm for row in shown)
    failed = f", {alarms} of them {'fails' if alarms == 1 else 'fail'}" if new else ""
    noise = len(rows) - len(shown)
    within = f"within the latest {counted(check.latest, 'run')}"
    if new:
        text = f"{counted(new, 'new change')} {within}{failed}"
    elif check.undecided:
        text = f"Undecided: no new change was found {within}, and too little was measured to decide"
    else:
        text = f"No new change {within}"
    text += f"; {noise} judged to be noise" if noise else ""
    older = sum(not one.is_new for one in check.changes)
    print_line(Text(f"{text}; {older} older"), console)


def _print_limits(found: HistoryChanges, console: Console, series: int | None = None) -> None:
    for text in filter(None, (undecided_text(found, series), again_text(found))):
        print_line(Text(f"  {printable(text)}"), console, indent=4, fold=True)


def _print_change(row: EventGroup, console: Console, device: str = "") -> None:
    mark, style = (
        ("✗", "red") if row.is_alarm else ("·" if row.is_noise else "!", "dim" * row.is_noise)
    )
    name = f"{row.name} on {device}" if device else row.name
    print_line(Text(f"{mark} {printable(name)}", style=style), console, indent=4, fold=True)
    commit = f", commit {row.run.commit[:12]}" if row.run.commit else ""
    lines = [
        f"{row.cause}  {row.text}",
        f"since run {row.run.id} of {row.run.time[:16]}{commit}",
        *row.reasons,
        *(f"remark: {remark}" for remark in row.remarks),
    ]
    for line in lines:
        print_line(Text(f"    {printable(line)}"), console, indent=6, fold=True)


def _print_rows(
    check: HistoryCheck, found: HistoryChanges, chosen: Sequence[int], console: Console
) -> None:
    rows = [series_row(check, found, series) for series in chosen]
    last = [f"{row.last_ratio:.2f} {row.last_cause}" if row.last_ratio else "" for row in rows]
    taken = 10 + max(6, *map(len, last)) + 4
    room = console.width - taken
    widest = max(len(printable(row.dispatch)) for row in rows)
    name_width = min(widest, max(20, room - 16))
    spark_width = max(8, min(_WIDEST, room - name_width))
    table = RichTable.grid(padding=(0, 1, 0, 0))
    table.add_column(width=name_width, no_wrap=True)
    table.add_column(width=9, justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    heads = ("dispatch", "latest", "trend", "change")
    table.add_row(*(Text(text, style="dim") for text in heads))
    for row, series, change in zip(rows, chosen, last, strict=True):
        values = found.history.median_ns[series].tolist()
        shown = row.outcome if row.outcome != "ok" else format_ns(row.median_ns, even=True)
        table.add_row(
            Text(elide(printable(row.dispatch), name_width)), Text(shown),
            Text(sparkline(values, spark_width)), Text(change),
        )  # fmt: skip
    console.print(table)


def _print_one(check: HistoryCheck, found: HistoryChanges, series: int, console: Console) -> None:
    history = found.history
    print_line(Text(printable(history.short_names[series])), console, fold=True)
    reference = history.references[series]
    if reference is not None:
        print_line(Text(f"compared with {printable(history.short_names[reference])}"), console,
                   fold=True)  # fmt: skip
    changes = changes_of(check, found, series)
    for line in _plot(history.median_ns[series].tolist(), [one.place for one in changes],
                      console.width):  # fmt: skip
        console.print(Text(line), soft_wrap=True)
    for one in changes[-_MOST_SHOWN:]:
        _print_change(EventGroup((one,)), console)
    if not changes:
        console.print("No change was found.")
    for cause in dict.fromkeys(one.change.cause for one in changes if one.change):
        print_line(Text(f"{cause}: {CAUSES[cause]}", style="dim"), console, indent=4)


def _plot(values: Sequence[float], changes: Sequence[int], width: int) -> list[str]:
    """A plot of bars with the scale on the left, and ``^`` under the runs with a change. It does
    not begin at zero."""
    cells = _binned(values, width - 11)
    known = [value for value in cells if math.isfinite(value)]
    if not known:
        return []
    low, high = min(known), max(known)
    margin = (high - low) * 0.05 or 0.01 * high
    low, high = low - margin, high + margin
    steps = _HEIGHT * len(BARS)
    heights = [round((value - low) / (high - low) * steps) if math.isfinite(value) else 0
               for value in cells]  # fmt: skip
    lines = []
    for row in reversed(range(_HEIGHT)):
        label = {_HEIGHT - 1: format_ns(high), 0: format_ns(low)}.get(row, "")
        bars = (min(len(BARS), max(0, height - row * len(BARS))) for height in heights)
        lines.append(f"{label:>9} " + "".join(BARS[bar - 1] if bar else " " for bar in bars))
    places = {run * len(cells) // len(values) for run in changes}
    if places:
        marks = "".join("^" if place in places else " " for place in range(len(cells)))
        lines.append(f"{'change':>9} {marks}".rstrip())
    return lines


def _binned(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values: medians of equally many neighbours."""
    count = min(len(values), max(1, width))
    cells = []
    for place in range(count):
        part = values[place * len(values) // count : (place + 1) * len(values) // count]
        known = sorted(value for value in part if math.isfinite(value))
        cells.append(known[len(known) // 2] if known else math.nan)
    return cells
