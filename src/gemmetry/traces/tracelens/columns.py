"""Building blocks of the declarations of TraceLens' sheets, including columns that many sheets
share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Column(NamedTuple):
    """One column of a sheet."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class SheetKind:
    """Documentation of a sheet."""

    name: str
    what: str
    columns: tuple[Column, ...]

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True)
class Table:
    """A sheet with its rows; cells are numbers, texts or None."""

    name: str
    headings: tuple[str, ...]
    rows: list[tuple[Any, ...]]


AGGREGATES = {
    "mean": "arithmetic mean", "median": "median", "std": "standard deviation (n - 1)",
    "min": "minimum", "max": "maximum", "sum": "sum",
}  # fmt: skip


def aggregated(name: str, unit: str, of: str, which: str) -> list[Column]:
    """``NAME_mean``, ``NAME_median`` ... for each of the words in `which`."""
    return [Column(f"{name}_{a}", unit, f"{AGGREGATES[a]} of {of}") for a in which.split()]


ARGUMENTS = (
    Column("Input Dims", "", "shapes of the operator's arguments"),
    Column("Input type", "", "their types"),
    Column("Input Strides", "", "their strides, in elements"),
    Column("Concrete Inputs", "", "values of scalar arguments"),
)
PLACE = (
    Column("process_name", "", "empty: process names are not kept"),
    Column("process_label", "", "empty: process labels are not kept"),
    Column("thread_name", "", "process and thread of the launch"),
)
KERNELS = (
    Column("kernel_details_summary", "", "kernels of the operator as a Python literal, GEMM "
           "kernels first, then those with the most time"),
    Column("trunc_kernel_details", "", "the same, shortened for reading"),
)  # fmt: skip
TIME = "the time in which the operator's kernels, copies and fills ran"
SPEC = Column("Compute Spec", "", "unit and format, matrix_bf16 or vector_fp32")

RATES = (
    *aggregated("TB/s", "10¹² B/s", "bytes moved over kernel time", "mean median std min max"),
    *aggregated("TFLOPS/s", "10¹² FLOP/s", "FLOP over kernel time", "mean median std min max"),
)
