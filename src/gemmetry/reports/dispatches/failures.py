"""Failures grouped by reason, and how a terminal shows them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from gemmetry.domain.outcome import Outcome
from gemmetry.domain.record import Record
from gemmetry.reports.labels import reason_line
from gemmetry.reports.lines import print_command, print_line
from gemmetry.reports.texts import printable

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
