"""What did not work, on a terminal: one message for all that failed alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from gemmetry.domain.record import Record
from gemmetry.reports.failures import NOT_RUN, FailureGroup, group_failures
from gemmetry.reports.labels import reason_line
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
    _print_line(line, console, indent=4)
    if group.others:
        console.print(Text(f"    and {group.others} more for the same reason:", style="dim"))
    _print_line(Text(f"    {reason_line(record)}"), console, indent=4)
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


def print_command(command: str, console: Console) -> None:
    """With backslashes at the ends of lines on a terminal, so that a copy still is one command."""
    lines = [""]
    for word in command.split(" "):
        is_full = len(lines[-1]) + len(word) + 9 > console.width  # indent, "$ ", " \\" and a space
        if console.is_terminal and lines[-1] and is_full:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    text = " \\\n      ".join(lines)
    console.print(Text(f"    $ {text}", style="dim"), soft_wrap=True)
