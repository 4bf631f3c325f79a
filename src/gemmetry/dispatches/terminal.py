"""Failures grouped by reason, and how a terminal shows them.

Tables on a terminal; those of dispatches are grouped by operation where they are too wide.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from gemmetry.dispatches.labels import operation_title, reason_line, shorten_configurations
from gemmetry.domain.errors import NameSyntaxError, Outcome
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.record import Record
from gemmetry.domain.tables import Table
from gemmetry.results.lines import print_command, print_line
from gemmetry.results.texts import printable

NOT_RUN = (Outcome.UNSUPPORTED, Outcome.SKIPPED)

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")

_MAXIMUM_FAILURES = 20
"""Messages printed in full; the rest are counted. `show` and every file format have all of them."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Dispatches of one provider that failed alike: with the same outcome, and with reasons that
    differ only in numbers and names of dispatches."""

    records: Sequence[Record]
    """In their order; the reason of the first is shown for all."""

    @property
    def first(self) -> Record:
        return self.records[0]

    @property
    def others(self) -> int:
        """How many there are besides the first."""
        return len(self.records) - 1


def ran_and_failed(record: Record) -> bool:
    """Whether the record is neither ok nor unsupported or skipped."""
    return record.outcome not in (Outcome.OK, *NOT_RUN)


def group_failures(records: Iterable[Record]) -> list[FailureGroup]:
    """The failures among `records`, grouped where they failed alike, in order of appearance."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        if ran_and_failed(record):
            kind = without_numbers(reason_line(record))
            key = (record.outcome, str(record.stage), record.provider, record.target, kind)
            groups.setdefault(key, []).append(record)
    return [FailureGroup(group) for group in groups.values()]


def without_numbers(text: str) -> str:
    """`text` with every number as 0, equal for two reasons that differ only in numbers."""
    return _NUMBER.sub("0", text)


def print_failures(records: Sequence[Record], console: Console) -> None:
    """Print the failures among `records`, then what was not run, each reason with its count."""
    groups = group_failures(records)
    if groups:
        console.print()
        count = sum(len(group.records) for group in groups)
        console.print(Text(f"Not ok: {count}", style="bold red"))
    for group in groups[:_MAXIMUM_FAILURES]:
        _print_group(group, console)
    hidden = sum(len(group.records) for group in groups[_MAXIMUM_FAILURES:])
    if hidden:
        console.print(Text(f"  … and {hidden} more"))
    _print_not_run(records, console)


def _print_group(group: FailureGroup, console: Console) -> None:
    record = group.first
    line = Text(f"  {record.outcome}", style="red")
    line.append(f"  {printable(f'{record.provider}:{record.dispatch}')}", style="default")
    print_line(line, console, indent=4, fold=True)
    if group.others:
        console.print(Text(f"    and {group.others} more for the same reason:", style="dim"))
    print_line(Text(f"    {reason_line(record)}"), console, indent=4, fold=True)
    if record.reproduce:
        print_command(printable(record.reproduce), console)


def _print_not_run(records: Sequence[Record], console: Console) -> None:
    not_run = Counter(
        (record.outcome, record.provider, reason_line(record))
        for record in records
        if record.outcome in NOT_RUN
    )
    if not_run:
        console.print()
        console.print(Text("Not run", style="bold"))
    for (outcome, provider, reason), count in not_run.most_common(_MAXIMUM_FAILURES):
        print_line(
            Text(f"  {count} × {provider} {outcome}: {reason}"), console, indent=4, fold=True
        )
    if len(not_run) > _MAXIMUM_FAILURES:
        console.print(Text(f"  … and {len(not_run) - _MAXIMUM_FAILURES} more reasons"))


_GAP = 1
_MINIMUM_CONFIGURATION = 13

_NOTHING = ("", "–")

_BELOW = ("reason", "refusal")
"""Columns of sentences, each of which gets a line of its own under the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedRow:
    """One dispatch: the cells of its row, and a sentence under it."""

    operation: str
    configuration: str
    cells: Mapping[str, str]
    """Heading -> text; a cell ``configuration`` is shortened to the remaining width."""
    below: str = ""
    style: str = ""


def print_table(table: Table, console: Console) -> None:
    """Print `table`, with values formatted for people. Dispatches that do not fit as one table are
    grouped by operation; other rows that are too wide get a line for each of their values."""
    columns = table.columns
    names = [printable(column.label) for column in columns]
    rows = [
        [printable(column.text(value)) for column, value in zip(columns, row, strict=True)]
        for row in table.rows
    ]
    widths = [max(map(cell_len, texts)) for texts in zip(names, *rows, strict=True)]
    is_dispatch = {"operation", "configuration"} <= set(names)
    if is_dispatch and rows and sum(widths) + 2 * len(widths) > console.width:
        numbers = [c.label for c in columns if c.type.is_numeric]
        print_grouped([_grouped(names, row) for row in rows], console, right=numbers)
        return
    least = [_longest_word(texts) for texts in zip(names, *rows, strict=True)]
    room = console.width - 2 * (len(least) - 1)
    if sum(least) > room:
        for number, row in enumerate(rows):
            if number:
                console.print()
            _print_values(dict(zip(names, row, strict=True)), console)
        return
    shown = RichTable(box=None, pad_edge=False, header_style="bold")
    for column, name, width in zip(columns, names, _levelled(widths, least, room), strict=True):
        side: JustifyMethod = "right" if column.type.is_numeric else "left"
        shown.add_column(Text(name), overflow="fold", width=width, justify=side)
    for row in rows:
        shown.add_row(*(Text(text) for text in row))
    console.print(shown)


def _print_values(
    values: Mapping[str, str], console: Console, *, indent: int = 0, style: str = ""
) -> None:
    """Print a line for each value, after its heading."""
    shown = {name: text for name, text in values.items() if text not in _NOTHING}
    width = min(max(map(len, shown), default=0), console.width // 2)
    table = RichTable.grid(padding=(0, 2, 0, 0))
    table.add_column(width=width, no_wrap=True, overflow="ellipsis")
    table.add_column(overflow="fold")
    for name, text in shown.items():
        table.add_row(Text(name, style="dim"), Text(text, style=style))
    console.print(Padding(table, (0, 0, 0, indent)))


def _longest_word(texts: Iterable[str]) -> int:
    return max((cell_len(word) for text in texts for word in text.split()), default=0)


def _levelled(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """`widths`, the widest of them narrowed to one level, none below `least`, so that they take at
    most `room`."""
    for level in range(max(widths, default=0), 0, -1):
        found = [max(low, min(width, level)) for width, low in zip(widths, least, strict=True)]
        if sum(found) <= room:
            return found
    return list(least)


def _grouped(headings: Sequence[str], row: Sequence[str]) -> GroupedRow:
    values = dict(zip(headings, row, strict=True))
    return GroupedRow(
        operation=values["operation"],
        configuration=values["configuration"],
        cells={key: text for key, text in values.items() if key not in ("operation", *_BELOW)},
        below="; ".join(values[key] for key in _BELOW if values.get(key, "") not in _NOTHING),
    )


def print_grouped(
    rows: Sequence[GroupedRow], console: Console, *, right: Sequence[str] = ()
) -> None:
    """Print `rows` (all with the same headings) under the heading of their operation.

    Columns that are empty everywhere are left out, and so is the configuration if it is the default
    everywhere and space is short. Columns in `right` are right-aligned. Where the columns do not
    fit next to each other, each value gets a line. A sentence that differs from the next row's only
    in numbers is printed once, under the last such row, with their count.
    """
    headings = [
        name for name in rows[0].cells if any(row.cells[name] not in _NOTHING for row in rows)
    ]
    widths = _widths(headings, rows, console.width)
    is_too_wide = sum(widths.values()) + _GAP * (len(headings) - 1) > console.width
    if is_too_wide and {row.configuration for row in rows} == {"default"}:
        headings = [name for name in headings if name != "configuration"]
        widths = _widths(headings, rows, console.width)
    has_room = sum(widths.values()) + _GAP * (len(headings) - 1) <= console.width
    if has_room:
        console.print(_table(headings, widths, right, heads=True))
    groups: dict[str, list[GroupedRow]] = {}
    for row in rows:
        groups.setdefault(row.operation, []).append(row)
    for operation, group in groups.items():
        title = printable(_title(operation))
        console.print(Text(title, style="bold", no_wrap=True, overflow="ellipsis"))
        names = [row.configuration for row in group]
        short = shorten_configurations(names, widths.get("configuration", len(max(names, key=len))))
        alike = 0
        for place, row in enumerate(group):
            alike += 1
            if not has_room:
                values = {name.replace("_", " "): printable(row.cells[name]) for name in headings}
                _print_values(values, console, indent=2, style=row.style)
            else:
                table = _table(headings, widths, right)
                cells = {**row.cells, "configuration": short[row.configuration]}
                table.add_row(*(Text(printable(cells[name]), style=row.style) for name in headings))
                console.print(table)
            is_last = place + 1 == len(group) or not has_room
            if not is_last and _is_alike(row.below, group[place + 1].below):
                continue  # The sentence is printed once, under the last of its rows.
            if row.below:
                lead = f"{alike} similar rows, the last: " if alike > 1 else ""
                text = Text(printable(lead + row.below), style="dim")
                console.print(Padding(text, (0, 0, 0, 4)))
            alike = 0


def _is_alike(first: str, second: str) -> bool:
    return without_numbers(first) == without_numbers(second)


def _title(operation: str) -> str:
    try:
        parsed, _ = split_dispatch_name(operation)
    except NameSyntaxError:
        return operation
    return operation_title(parsed)


def _widths(headings: Sequence[str], rows: Sequence[GroupedRow], total: int) -> dict[str, int]:
    """The width of each column: that of its values and of the longest word of its heading, with the
    configuration in the remaining width. Values of several words are narrowed first."""
    widths, least = {}, {}
    for name in headings:
        texts = [row.cells[name] for row in rows]
        head = max(len(word) for word in name.split("_"))
        widths[name] = max(head, *(len(text) for text in texts))
        words = (len(word) for text in texts for word in text.split(" "))
        least[name] = max(head, *words)
    if "configuration" in widths:
        least["configuration"] = _MINIMUM_CONFIGURATION
    room = total - _GAP * (len(headings) - 1)
    for name in ("configuration", *sorted(widths, key=lambda key: least[key] - widths[key])):
        if name in widths:
            excess = max(0, sum(widths.values()) - room)
            widths[name] = max(min(least[name], widths[name]), widths[name] - excess)
    return widths


def _table(
    headings: Sequence[str], widths: Mapping[str, int], right: Sequence[str], heads: bool = False
) -> RichTable:
    table = RichTable.grid(padding=(0, _GAP, 0, 0))
    for name in headings:
        side: JustifyMethod = "right" if name in right else "left"
        table.add_column(width=widths[name], overflow="fold", justify=side)
    if heads:
        table.add_row(*(Text(name.replace("_", " "), style="dim") for name in headings))
    return table
