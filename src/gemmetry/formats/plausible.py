"""Removes impossible values from rows, so that figures computed from the rest are correct.

Readers accept every number that fits a column. In addition, sums and differences of times must fit
64 bits, a number of ranks must not exhaust memory when ranks are counted, and texts must be
encodable.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gemmetry.formats.events import MOST_RANKS, Bools, Int64, TraceProblem, TraceRows, chosen
from gemmetry.formats.naming import encodable, short_name

LONGEST_NS = 2**50
"""13 days: no kernel or operator takes that long."""

LARGEST_SUM_NS = 2**62
"""Limit for the sum of all durations of a table."""

EARLIEST_NS, LATEST_NS = -(2**61), 2**62
"""Valid times lie between these two (the latter is in 2116 for times since 1970), so that the
difference of any two fits 64 bits."""

MOST_DEVICES = 1 << 16

_TABLES = {
    "gpu": "work on a GPU", "calls": "call", "operators": "operator", "annotations": "annotation",
}  # fmt: skip


def plausible(rows: TraceRows) -> TraceRows:
    """`rows` without impossible values, which are listed in its ``problems``."""
    changed = _texts(rows)
    problems: list[TraceProblem] = []
    if not 0 <= rows.base_ns <= LATEST_NS:
        what = f"baseTimeNanoseconds {rows.base_ns} is not a valid time: times count from 0"
        problems.append(TraceProblem("file", what))
        changed["base_ns"] = 0
    for key in ("rank", "world_size"):
        value = getattr(rows, key)
        if value is not None and value > MOST_RANKS:
            problems.append(
                TraceProblem("file", f"{key} {value} is impossible and is treated as not recorded")
            )
            changed[key] = None
    names, base = changed.get("names", rows.names), changed.get("base_ns", rows.base_ns)
    for table, what in _TABLES.items():
        columns = getattr(rows, table)
        bad = _impossible(columns.start_ns, columns.duration_ns, base)
        if bad is not None and table == "gpu":
            # Left out and counted later, as work of every kind without a usable time is.
            changed[table] = dataclasses.replace(
                columns,
                start_ns=np.where(bad, 0, columns.start_ns),
                duration_ns=np.where(bad, 0, columns.duration_ns),
            )
        elif bad is not None:
            name = short_name(names[columns.name[int(bad.argmax())]], 60)
            more = f" (so do {count - 1} more)" if (count := int(bad.sum())) > 1 else ""
            reason = f"has an impossible start or duration: left out{more}"
            problems.append(TraceProblem(f"{what} {name!r}", reason, count=count))
            changed[table] = chosen(columns, ~bad)
    if problems:
        changed["problems"] = (*rows.problems, *problems)
    return dataclasses.replace(rows, **changed) if changed else rows


def _texts(rows: TraceRows) -> dict[str, Any]:
    """The texts with invalid characters replaced, and the devices with valid numbers."""
    changed: dict[str, Any] = {}
    for key in ("names", "threads"):
        texts = getattr(rows, key)
        if encodable(whole := "".join(texts)) is not whole:
            changed[key] = tuple(map(encodable, texts))
    for key in ("host", "job"):
        text = getattr(rows, key)
        if text and encodable(text) is not text:
            changed[key] = encodable(text)
    devices = {n: encodable(text) for n, text in rows.devices.items() if 0 <= n < MOST_DEVICES}
    versions = {key: encodable(text) for key, text in rows.versions.items()}
    if devices != rows.devices:
        changed["devices"] = devices
    if versions != rows.versions:
        changed["versions"] = versions
    return changed


def _impossible(start: Int64, duration: Int64, base_ns: int) -> Bools | None:
    """Which rows have impossible times; None if none has."""
    if not len(start):
        return None
    longest = LONGEST_NS
    if int(duration.max()) * len(duration) > LARGEST_SUM_NS and (
        float(duration.sum(dtype=np.float64)) > LARGEST_SUM_NS
    ):
        longest = min(longest, LARGEST_SUM_NS // len(duration))
    earliest, latest = EARLIEST_NS, LATEST_NS - base_ns
    if duration.max() <= longest and start.min() >= earliest and start.max() <= latest:
        return None
    bad: Bools = (duration > longest) | (start < earliest) | (start > latest)
    return bad
