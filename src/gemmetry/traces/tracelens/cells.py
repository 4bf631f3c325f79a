"""Cell texts of tables with TraceLens' columns: arguments and kernels as Python literals.

Building blocks for the declarations of TraceLens' sheets, including columns that many sheets
share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.formats.events import GpuKind, Int64
from gemmetry.traces.joins import NONE
from gemmetry.traces.model import Trace
from gemmetry.traces.names import KernelKind
from gemmetry.traces.operators.gemms import distinct_rows, grouped_statistics

MOST_NAME_CHARACTERS = 4096
"""Most characters of one kernel in a list of kernels."""

_MOST_CHARACTERS = 32_000
"""Most characters of a list: a cell holds 32767 (Excel's published limits), and a truncated literal
cannot be parsed."""

_SHORT_NAME = 64
"""Characters of a name in the shortened list, as in TraceLens."""

_MULTIPLIES = (KernelKind.GEMM, KernelKind.GEMV)


@lru_cache(maxsize=8192)
def argument_text(text: str, *, as_tuple: bool = True) -> str | None:
    """A list of an operator's arguments, JSON in the trace, as a Python literal: nested tuples as
    in TraceLens' ``ops_unique_args``, or lists; None where it is missing."""
    if not text:
        return None
    try:
        value = msgspec.json.decode(text)
        return repr(_tuples(value) if as_tuple else value)
    except (msgspec.DecodeError, RecursionError):
        return text


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def kernel_lists(
    trace: Trace, owner: Int64, owners: int, *, row: Int64 | None = None
) -> list[tuple[str, str]]:
    """For each owner its kernels, copies and fills by name and stream, as a Python literal with
    their times in µs, and shortened.

    Kernels that multiply come first, fills and copies last, and within these groups those with the
    most time first, so that a script that reads the first kernel of a GEMM gets the GEMM itself.

    Args:
        owner: (rows of ``TraceRows.gpu``,) numbers from 0 to below `owners`; -1: no owner.
        row: the rows that `owner` refers to, which may have several owners. None: every row, once.
    """
    gpu = trace.rows.gpu
    known = np.flatnonzero(owner != NONE)
    result = [("[]", "[]")] * owners
    if not len(known):
        return result
    owner, chosen = owner[known], known if row is None else row[known]
    distinct, which = distinct_rows(owner, gpu.name[chosen], gpu.stream[chosen], gpu.kind[chosen])
    found = grouped_statistics(which, gpu.duration_ns[chosen], len(distinct))
    multiplies = {i for i, facts in trace.kernel_names.items() if facts.kind in _MULTIPLIES}
    lists: dict[int, list[tuple[tuple[int, int], dict[str, Any]]]] = {}
    for place, (of, name, stream, kind) in enumerate(distinct.tolist()):
        total, count = int(found.sum[place]), int(found.count[place])
        order = 2 if kind != GpuKind.KERNEL else int(name not in multiplies)
        spread = 0.0 if count == 1 else found.std[place] * math.sqrt((count - 1) / count)
        lists.setdefault(of, []).append(((order, -total), {
            "name": trace.rows.names[name][:MOST_NAME_CHARACTERS],
            "stream": stream,
            "count": count,
            "total_duration_us": total / 1000,
            "mean_duration_us": _us(found.mean[place]),
            "median_duration_us": _us(found.median[place]),
            "std_dev_duration_us": _us(spread),
            "min_duration_us": _us(found.min[place]),
            "max_duration_us": _us(found.max[place]),
        }))  # fmt: skip
    for of, entries in lists.items():
        entries.sort(key=lambda entry: entry[0])
        result[of] = (
            _literal([entry for _, entry in entries]),
            _literal([_shortened(entry) for _, entry in entries]),
        )
    return result


def _us(ns: float) -> float:
    return round(float(ns) / 1000, 6)


def _shortened(entry: dict[str, Any]) -> dict[str, Any]:
    name = entry["name"]
    short = name if len(name) <= _SHORT_NAME else f"{name[:_SHORT_NAME]}..."
    mean = round(entry["mean_duration_us"], 2)
    return {"name": short, "stream": entry["stream"], "mean_duration_us": mean}


def _literal(entries: list[dict[str, Any]]) -> str:
    """As many of the first entries as fit into a cell."""
    texts: list[str] = []
    left = _MOST_CHARACTERS
    for entry in entries:
        text = repr(entry)
        left -= len(text) + 2
        if left < 0:
            break
        texts.append(text)
    return f"[{', '.join(texts)}]"


def text(name: str, description: str) -> Column:
    """A column of texts."""
    return Column(name, description=description)


def integer(name: str, description: str) -> Column:
    """A column of integers."""
    return Column(name, ColumnType.INTEGER, description=description)


def boolean(name: str, description: str) -> Column:
    """A column of booleans."""
    return Column(name, ColumnType.BOOLEAN, description=description)


def number(name: str, unit: str, description: str) -> Column:
    """A column of numbers."""
    return Column(name, ColumnType.NUMBER, unit, description)


@dataclass(frozen=True, slots=True)
class SheetKind:
    """Documentation of a sheet."""

    name: str
    what: str
    columns: tuple[Column, ...]

    def table(self, rows: Sequence[Sequence[Any]]) -> Table:
        """The sheet with its rows; cells are numbers, texts or None."""
        return Table(self.name, self.columns, rows)


AGGREGATES = {
    "mean": "arithmetic mean", "median": "median", "std": "standard deviation (n - 1)",
    "min": "minimum", "max": "maximum", "sum": "sum",
}  # fmt: skip


def aggregated(name: str, unit: str, of: str, which: str) -> list[Column]:
    """``NAME_mean``, ``NAME_median`` ... for each of the words in `which`."""
    return [number(f"{name}_{a}", unit, f"{AGGREGATES[a]} of {of}") for a in which.split()]


ARGUMENTS = (
    text("Input Dims", "shapes of the operator's arguments"),
    text("Input type", "types of the operator's arguments"),
    text("Input Strides", "strides of the operator's arguments, in elements"),
    text("Concrete Inputs", "values of scalar arguments"),
)
PLACE = (
    text("process_name", "empty: process names are not kept"),
    text("process_label", "empty: process labels are not kept"),
    text("thread_name", "process and thread of the launch"),
)
KERNELS = (
    text("kernel_details_summary", "kernels of the operator as a Python literal, GEMM "
           "kernels first, then those with the most time"),
    text("trunc_kernel_details", "the same, shortened for readability"),
)  # fmt: skip
TIME = "the time during which the operator's kernels, copies and fills ran"
SPEC = text("Compute Spec", "unit and format, matrix_bf16 or vector_fp32")

RATES = (
    *aggregated(
        "TB/s", "10¹² B/s", "bytes moved divided by kernel time", "mean median std min max"
    ),
    *aggregated(
        "TFLOPS/s", "10¹² FLOP/s", "FLOP divided by kernel time", "mean median std min max"
    ),
)
