"""Building blocks for the declarations of TraceLens' sheets, including columns that many sheets
share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gemmetry.domain.tables import Column, ColumnType, Table


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
