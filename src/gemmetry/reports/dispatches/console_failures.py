"""What did not work, on a terminal: one message for all that failed alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from gemmetry.domain.record import Record
from gemmetry.reports.dispatches.failures import NOT_RUN, FailureGroup, group_failures
from gemmetry.reports.labels import reason_line
from gemmetry.reports.lines import print_command, print_line
from gemmetry.reports.texts import printable

_MAXIMUM_FAILURES = 20
"""Messages printed in full; the rest is counted, and `show` and every file format have them all."""


def print_failures(records: Sequence[Record], console: Console) -> None:
    """Print what failed among `records`, then what was not run, each reason with its count."""
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
