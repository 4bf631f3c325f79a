"""Failures with the same reason as one message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gemmetry.domain.outcome import Outcome
from gemmetry.domain.record import Record
from gemmetry.reports.labels import reason_line

NOT_RUN = (Outcome.UNSUPPORTED, Outcome.SKIPPED)

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Dispatches of one provider that failed alike: same outcome, and reasons that differ in
    numbers and names of dispatches alone."""

    records: Sequence[Record]
    """In their order; the first one's reason stands for all."""

    @property
    def first(self) -> Record:
        return self.records[0]

    @property
    def others(self) -> int:
        """How many there are besides the first."""
        return len(self.records) - 1


def ran_and_failed(record: Record) -> bool:
    """Whether the record is neither ok nor left out."""
    return record.outcome not in (Outcome.OK, *NOT_RUN)


def group_failures(records: Iterable[Record]) -> list[FailureGroup]:
    """What failed among `records`, those that failed alike together, in order of appearance."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        if ran_and_failed(record):
            kind = without_numbers(reason_line(record))
            key = (record.outcome, str(record.stage), record.provider, record.target, kind)
            groups.setdefault(key, []).append(record)
    return [FailureGroup(group) for group in groups.values()]


def without_numbers(text: str) -> str:
    """`text` with every number as 0: what two reasons have in common that differ in numbers."""
    return _NUMBER.sub("0", text)
