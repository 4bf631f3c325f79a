"""Adds up sheets that have rows for each file over all files, as a page shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from gemmetry.domain.tables import Column, Table
from gemmetry.kernel_names import GEMM_KINDS, KernelKind, classify
from gemmetry.traces.operators.host import HostOperator


class _SummedColumns(NamedTuple):
    """How rows of several files are combined into one."""

    keys: tuple[str, ...]
    """Columns that identify a row; columns that are not named here or below are left out."""
    calls: str
    spent: str
    """The column of times by which rows are ordered."""
    percent: str
    """The column with the percentage of the sum of `spent`."""
    mean: str = ""
    """`spent` over `calls`."""


_SUMMED = {
    "ops_summary": _SummedColumns(
        ("name",), "Count", "total_direct_kernel_time_ms", "Percentage (%)"
    ),
    "ops_summary_by_category": _SummedColumns(
        ("op category",), "Count", "total_direct_kernel_time_ms", "Percentage (%)"
    ),
    "kernel_summary": _SummedColumns(
        ("Parent op category", "Parent cpu_op", "Kernel name"),
        "Kernel duration (µs)_count",
        "Kernel duration (µs)_sum",
        "Percent of kernels time (%)",
        "Kernel duration (µs)_mean",
    ),
}


ONLY_ON = "only on"
"""Name of the column that lists the ranks of a row, where not all have it."""


def sum_over_files(table: Table, only_on: Callable[[Set[Path]], str] = lambda _: "") -> Table:
    """`table` added up over all files, if it has operators or kernels of several; otherwise itself.

    Counts and times are added up, shares refer to the sum of all, and rows with the most time come
    first.

    Args:
        only_on: the text for a row that only these files have, "" for none; the column
            :data:`ONLY_ON` exists if any row has a text.
    """
    how = _SUMMED.get(table.name)
    if how is None or "file" not in table.names:
        return table
    kept = (*how.keys, how.calls, how.spent, how.percent, *filter(None, (how.mean,)))
    wanted = table.select(("file", how.calls, how.spent, *how.keys))
    sums: dict[tuple[Any, ...], list[Any]] = {}
    files: dict[tuple[Any, ...], set[Path]] = {}
    for file, calls, spent, *keys in wanted.rows:
        key = tuple(keys)
        found = sums.setdefault(key, [0, 0.0])
        found[0] += calls
        found[1] += spent
        files.setdefault(key, set()).add(Path(file))
    whole = sum(time for _, time in sums.values())
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])
    rows = [
        (*key, count, time, 100 * time / whole if whole else 0.0, *_mean(how, count, time))
        for key, (count, time) in ordered
    ]
    alone = [only_on(files[key]) for key, _ in ordered]
    return with_only_on(Table(table.name, table.select(kept).columns, rows), alone)


def with_only_on(table: Table, texts: Sequence[str]) -> Table:
    """`table` with the column :data:`ONLY_ON`, one of `texts` per row, if any of them is not
    empty."""
    if not any(texts):
        return table
    rows = [(*row, text or None) for row, text in zip(table.rows, texts, strict=True)]
    return Table(table.name, (*table.columns, Column(ONLY_ON)), rows)


def _mean(how: _SummedColumns, count: int, time: float) -> Sequence[float]:
    return (time / count,) if how.mean else ()


_NO_LAUNCH = "launch not in the trace"

_WORDS = {"record_param_comms": "communication"}
"""Categories that are named after an operator -> the category of what such operators compute."""

_PARTS = ("gemm", "attention", "other", "communication")
_KINDS = {
    **dict.fromkeys(GEMM_KINDS, "gemm"),
    KernelKind.ATTENTION: "attention",
    KernelKind.COLLECTIVE: "communication",
}


def kernel_time_by_category(table: Table) -> dict[str, dict[str, float]]:
    """Kernel time in µs from ``kernel_summary``, by the category of the operator that launched a
    kernel and by what the kernel does: gemm, attention, other or communication."""
    names = ("Parent op category", "Parent cpu_op", "Kernel name", "Kernel duration (µs)_sum")
    sums: dict[str, dict[str, float]] = {}
    for category, parent, name, spent in table.select(names).rows:
        word = _NO_LAUNCH if parent is None else category or "other"
        parts = sums.setdefault(_WORDS.get(word, word), dict.fromkeys(_PARTS, 0.0))
        parts[_KINDS.get(classify(name).kind, "other")] += spent
    return sums


def self_time_by_operator(rows: Sequence[HostOperator]) -> list[tuple[str, int, int]]:
    """Name, self time in ns and calls of each operator, those with the most time first."""
    sums: dict[str, list[int]] = {}
    for row in rows:
        found = sums.setdefault(row.name, [0, 0])
        found[0] += row.self_ns
        found[1] += row.count
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])
    return [(name, ns, count) for name, (ns, count) in ordered]
