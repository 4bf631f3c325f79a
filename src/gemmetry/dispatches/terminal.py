"""Results on a terminal, readable at 80 columns: failures grouped by reason; tables, those of
dispatches grouped by operation where they are too wide; everything about a run."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from gemmetry.dispatches.analysis import fastest, group_by_problem, rank
from gemmetry.dispatches.labels import (
    DIFFERENCE_SIGNS,
    NOT_RUN,
    UNAPPLIED,
    VERIFICATION_LEGEND,
    VERIFICATION_MARKS,
    Overview,
    difference_legend,
    difference_sign,
    format_ratio,
    half_width_label,
    means_label,
    noted_checks,
    operation_title,
    outcome_counts,
    ran_and_failed,
    reason_line,
    shorten_configurations,
)
from gemmetry.dispatches.results import record_table
from gemmetry.domain import units
from gemmetry.domain.dispatch import split_dispatch_name
from gemmetry.domain.errors import NameSyntaxError, Outcome
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.tables import Table, grouped
from gemmetry.domain.units import plural
from gemmetry.results.lines import print_command, print_line, print_pointer
from gemmetry.results.texts import printable

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")

_MAXIMUM_FAILURES = 20
"""Messages printed in full; the rest are counted. `show` and every file format have all of them."""


def group_failures(records: Iterable[Record]) -> list[list[Record]]:
    """The failures among `records`, in groups of one provider that failed alike: with the same
    outcome, and with reasons that differ only in numbers and names of dispatches."""
    return list(grouped(filter(ran_and_failed, records), lambda one: (
        one.outcome, one.stage, one.provider, one.target, without_numbers(reason_line(one))
    )).values())  # fmt: skip


def without_numbers(text: str) -> str:
    """`text` with every number as 0, equal for two reasons that differ only in numbers."""
    return _NUMBER.sub("0", text)


def print_failures(records: Sequence[Record], console: Console) -> None:
    """Print the failures among `records`, then what was not run, each reason with its count."""
    groups = group_failures(records)
    if groups:
        console.print()
        console.print(Text(f"Not ok: {sum(map(len, groups))}", style="bold red"))
    for record, *others in groups[:_MAXIMUM_FAILURES]:
        line = Text(f"  {record.outcome}", style="red")
        line.append(f"  {printable(f'{record.provider}:{record.dispatch}')}", style="default")
        print_line(line, console, indent=4, fold=True)
        if others:
            console.print(Text(f"    and {len(others)} more for the same reason:", style="dim"))
        print_line(Text(f"    {reason_line(record)}"), console, indent=4, fold=True)
        if record.reproduce:
            print_command(printable(record.reproduce), console)
    if hidden := sum(map(len, groups[_MAXIMUM_FAILURES:])):
        console.print(Text(f"  … and {hidden} more"))
    not_run = Counter(
        (record.outcome, record.provider, reason_line(record))
        for record in records
        if record.outcome in NOT_RUN
    )
    if not_run:
        console.print()
        console.print(Text("Not run", style="bold"))
    for (outcome, provider, reason), count in not_run.most_common(_MAXIMUM_FAILURES):
        text = Text(f"  {count} × {provider} {outcome}: {reason}")
        print_line(text, console, indent=4, fold=True)
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
    cells: Mapping[str, str]
    """Heading -> text; the cell ``configuration`` is shortened to the remaining width."""
    below: str = ""
    style: str = ""
    place: str = ""
    """Follows the operation in its heading: where, or on what inputs, it ran."""


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
        values = (dict(zip(names, row, strict=True)) for row in rows)
        print_grouped([GroupedRow(
            operation=one["operation"],
            cells={key: text for key, text in one.items() if key not in ("operation", *_BELOW)},
            below="; ".join(one[key] for key in _BELOW if one.get(key, "") not in _NOTHING),
        ) for one in values], console, right=numbers)  # fmt: skip
        return
    least = [max((cell_len(word) for text in texts for word in text.split()), default=0)
             for texts in zip(names, *rows, strict=True)]  # fmt: skip
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


def _levelled(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """`widths`, the widest of them narrowed to one level, none below `least`, so that they take at
    most `room`."""
    for level in range(max(widths, default=0), 0, -1):
        found = [max(low, min(width, level)) for width, low in zip(widths, least, strict=True)]
        if sum(found) <= room:
            return found
    return list(least)


def print_grouped(
    rows: Sequence[GroupedRow],
    console: Console,
    *,
    right: Sequence[str] = (),
    signed: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print `rows` (all with the same headings) under the heading of their operation.

    Columns that are empty everywhere are left out, and so is the configuration if it is the default
    everywhere and space is short. Columns in `right` are right-aligned, and so are those in
    `signed`, where signs that may follow a number stand apart from it. Where the columns do not
    fit next to each other, each value gets a line. A sentence that differs from the next row's only
    in numbers is printed once, under the last such row, with their count.
    """
    for heading, signs in signed.items():
        rows = _with_signs_apart(rows, heading, signs)
    headings = [
        name for name in rows[0].cells if any(row.cells[name] not in _NOTHING for row in rows)
    ]
    widths = _widths(headings, rows, console.width)
    is_too_wide = sum(widths.values()) + _GAP * (len(headings) - 1) > console.width
    if is_too_wide and {row.cells["configuration"] for row in rows} == {"default"}:
        headings = [name for name in headings if name != "configuration"]
        widths = _widths(headings, rows, console.width)
    has_room = sum(widths.values()) + _GAP * (len(headings) - 1) <= console.width
    if has_room:
        heads = [name.rjust(widths[name]) if name in signed else name for name in headings]
        console.print(_table(headings, widths, right, heads))
    for (operation, place), group in grouped(rows, attrgetter("operation", "place")).items():
        title = Text(printable(_title(operation)), "bold", no_wrap=True, overflow="ellipsis")
        console.print(title.append(f"  {place}" if place else "", "dim"))
        names = [row.cells["configuration"] for row in group]
        short = shorten_configurations(names, widths.get("configuration", len(max(names, key=len))))
        table = _table(headings, widths, right)
        alike = 0
        for number, row in enumerate(group):
            alike += 1
            if not has_room:
                values = {name.replace("_", " "): printable(row.cells[name]) for name in headings}
                _print_values(values, console, indent=2, style=row.style)
            else:
                cells = {**row.cells, "configuration": short[names[number]]}
                table.add_row(*(Text(printable(cells[name]), style=row.style) for name in headings))
            is_last = number + 1 == len(group)
            below = [without_numbers(one.below) for one in group[number : number + 2]]
            if has_room and not is_last and below[0] == below[1]:
                continue  # The sentence is printed once, under the last of its rows.
            if table.row_count and (row.below or is_last):
                console.print(table)
                table = _table(headings, widths, right)
            if row.below:
                lead = f"{alike} similar rows, the last: " if alike > 1 else ""
                text = Text(printable(lead + row.below), style="dim")
                console.print(Padding(text, (0, 0, 0, 4)))
            alike = 0


def _with_signs_apart(rows: Sequence[GroupedRow], heading: str, signs: str) -> list[GroupedRow]:
    """The rows with numbers in the column `heading` that line up; `signs` may follow them."""
    texts = [row.cells[heading] for row in rows]
    if any(text.endswith(tuple(signs)) for text in texts):
        texts = [text if text.endswith(tuple(signs)) else f"{text} " for text in texts]
    width = max(map(len, (*texts, heading)))
    return [
        replace(row, cells={**row.cells, heading: text.rjust(width) if text.strip() else ""})
        for row, text in zip(rows, texts, strict=True)
    ]


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
    headings: Sequence[str], widths: Mapping[str, int], right: Sequence[str],
    heads: Sequence[str] = (),
) -> RichTable:  # fmt: skip
    table = RichTable.grid(padding=(0, _GAP, 0, 0))
    for name in headings:
        side: JustifyMethod = "right" if name in right else "left"
        table.add_column(width=widths[name], overflow="fold", justify=side)
    if heads:
        table.add_row(*(Text(name.replace("_", " "), style="dim") for name in heads))
    return table


_RATIO_SIGNS = "".join(sign for sign, _ in DIFFERENCE_SIGNS.values())

_MAXIMUM_BASELINE = 14
"""Characters of the baseline's heading; ``×iree:default`` has 13."""


def print_results(
    results: ResultSet,
    console: Console,
    *,
    columns: Sequence[str] | None = None,
    baseline: str | None = None,
) -> None:
    """Print the results to `console`.

    Without `columns`: one sentence with the fastest, a group for each operation with its
    dispatches, fastest first, then what failed and why. `baseline` names the provider, or
    provider:configuration, of the × column (default: torch or numpy, if one was measured along
    with others). With `columns` (names of docs/columns.md or presets): one plain table of these,
    grouped by operation if it is too wide.

    Raises:
        UnknownNameError: no such column, or `baseline` is not a provider of these results.
    """
    if columns:
        print_table(record_table(results.records, columns), console)
        return
    overview = Overview(results, baseline)
    rows = _dispatch_rows(overview)
    if overview.verdict:
        print_line(Text(overview.verdict, style="bold"), console)
        console.print()
    if rows:
        *_, unit, roof, ratio, _mark = rows[0].cells
        signed = {"±": "!"} | ({ratio: _RATIO_SIGNS} if overview.baseline else {})
        print_grouped(rows, console, right=("time", unit, roof), signed=signed)
    print_failures(results.records, console)
    _print_footer(overview, console)


def _dispatch_rows(overview: Overview) -> list[GroupedRow]:
    """The dispatches that were measured, or ran without being measured."""
    records, relative = overview.results.records, overview.relative
    shown = [r for r in records if r.measurement is not None]
    shown += [r for r in records if r.measurement is None and r.outcome is Outcome.OK]
    speeds = [record.gflops for record in shown if record.gflops is not None]
    unit, divisor = ("GFLOP/s", 1.0) if max(speeds, default=0.0) < 10_000 else ("TFLOP/s", 1e3)
    decimals = units.column_decimals(speed / divisor for speed in speeds)
    problems = group_by_problem(shown)
    devices = {problem[:2] for problem in problems}
    distributions = {problem[3] for problem in problems}
    rows = []
    for (target, device, operation, distribution), group in problems.items():
        where = [f"on {device or target}"] if len(devices) > 1 else []
        where += [f"{distribution} inputs"] if len(distributions) > 1 else []
        best = fastest(group)
        for record in sorted(group, key=rank):
            m, speed, roof = record.measurement, record.gflops, record.roofline_fraction
            ratio = "" if relative is None else (
                format_ratio(relative.of(record)) + difference_sign(relative.difference(record))
            )  # fmt: skip
            cells = {
                "": "▸" if record is best else "",
                "provider": record.provider,
                "configuration": record.configuration,
                "time": "–" if m is None else units.format_ns(m.median_ns, even=True),
                "±": half_width_label(m) + "!" * bool(overview.marks.of(record)) if m else "",
                unit: "–" if speed is None else f"{speed / divisor:,.{decimals}f}",
                "roof": "" if roof is None else f"{roof:.0%}",
                f"×{overview.baseline}"[:_MAXIMUM_BASELINE]: ratio,
                " ": VERIFICATION_MARKS[record.verdict.status],
            }
            rows.append(GroupedRow(
                operation=operation, cells=cells, place=", ".join(where),
                style="bold green" if record is best else "",
            ))  # fmt: skip
    return rows


def _print_verified(records: Sequence[Record], console: Console) -> bool:
    """Print how accurate the results are, and how many checks this provider or device made
    impossible; return whether there are any."""
    classes = Counter(
        record.verdict.accuracy_class
        for record in records
        if record.outcome is Outcome.OK and record.verdict.accuracy_class
    )
    if classes:
        text = ", ".join(f"{count} {name}" for name, count in classes.most_common())
        console.print(Text(f"Accuracy: {text}"))
    if checks := noted_checks(records, UNAPPLIED):
        up_to = "up to " if len(set(checks.values())) > 1 else ""
        where = f"on {up_to}{max(checks.values())} of {len(records)} dispatches"
        console.print(Text(f"Not possible here: {plural(len(checks), 'check')} {where}"))
    refused = [record.verdict.refused_shapes for record in records if record.verdict.refused_shapes]
    if refused:
        many = plural(sum(refused), "small shape")
        console.print(Text(f"Refused: {many}, by {len(refused)} of {len(records)} dispatches"))
    noted = {"Cut short": noted_checks(records, "incomplete"),
             "Properties": noted_checks(records, "property")}  # fmt: skip
    total = plural(len(records), "dispatch", "dispatches")
    for what, found in noted.items():
        if found:
            named = ", ".join(f"{check} ({count})" for check, count in found.items())
            console.print(Text(f"{what}: {named}, of {total}"))
    return bool(checks or refused or any(noted.values()))


def _print_footer(overview: Overview, console: Console) -> None:
    records, folder, relative = overview.results.records, overview.results.path, overview.relative
    console.print()
    if relative is not None and relative.means:
        means = means_label(sorted(relative.means.items()), "rows marked !")
        best = "" if ":" in relative.baseline else "best "
        text = f"Speed relative to {best}{overview.baseline_label}, geometric mean (operations): "
        console.print(Text(text + means))
    for line in overview.run_states:
        print_line(Text(line), console)
    if overview.less_trustworthy:
        console.print(Text(overview.less_trustworthy))
    if _print_verified(records, console) or overview.kinds or overview.marks.has_common:
        place = shlex.quote(printable(folder)) if folder else "EXPERIMENT"
        print_pointer("All marks and checks of a row:", f"gemmetry show {place} DISPATCH", console)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcome_counts(records).items())
    total = plural(len(records), "dispatch", "dispatches")
    console.print(Text(f"{total}: {counts}" if counts else total))
    if any(record.outcome is Outcome.OK for record in records):
        legend = [f"▸ fastest   {VERIFICATION_LEGEND}   ! see marks"]
        found = difference_legend(relative.verdicts.values() if relative else ())
        legend += [f"{sign} {text}" for sign, text in found]
        console.print(Text("\n".join(legend), style="dim"))
