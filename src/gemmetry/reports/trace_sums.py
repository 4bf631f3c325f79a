"""Sheets that have rows for each file, with all files together: what a page shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gemmetry.traces.tracelens_columns import Table


class _Sums(NamedTuple):
    """How rows of several files become one."""

    keys: tuple[str, ...]
    """Columns that tell rows apart; all others that are not named below are left out."""
    calls: str
    spent: str
    """The column of time, by which rows are ordered."""
    percent: str
    """Of the sum of `spent`."""
    mean: str = ""
    """`spent` over `calls`."""


_SUMMED = {
    "ops_summary": _Sums(("name",), "Count", "total_direct_kernel_time_ms", "Percentage (%)"),
    "ops_summary_by_category": _Sums(
        ("op category",), "Count", "total_direct_kernel_time_ms", "Percentage (%)"
    ),
    "kernel_summary": _Sums(
        ("Parent op category", "Parent cpu_op", "Kernel name"),
        "Kernel duration (µs)_count",
        "Kernel duration (µs)_sum",
        "Percent of kernels time (%)",
        "Kernel duration (µs)_mean",
    ),
}


def over_files(table: Table) -> Table:
    """`table` with all files together, if it tells operators or kernels of several; else itself.

    Counts and times are added up, shares are of the sum of all, and those with the most time stand
    first.
    """
    how = _SUMMED.get(table.name)
    if how is None or "file" not in table.headings:
        return table
    places = [table.headings.index(name) for name in how.keys]
    calls, spent = table.headings.index(how.calls), table.headings.index(how.spent)
    sums: dict[tuple[Any, ...], list[Any]] = {}
    for row in table.rows:
        found = sums.setdefault(tuple(row[place] for place in places), [0, 0.0])
        found[0] += row[calls]
        found[1] += row[spent]
    whole = sum(time for _, time in sums.values())
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])
    headings = (*how.keys, how.calls, how.spent, how.percent, *filter(None, (how.mean,)))
    rows = [
        (*key, count, time, 100 * time / whole if whole else 0.0, *_mean(how, count, time))
        for key, (count, time) in ordered
    ]
    return Table(table.name, headings, rows)


def _mean(how: _Sums, count: int, time: float) -> Sequence[float]:
    return (time / count,) if how.mean else ()
