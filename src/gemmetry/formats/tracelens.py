"""TraceLens' xlsx reports -> neutral tables; columns by name, since their order is not stable."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from gemmetry.domain.errors import RequestError
from gemmetry.formats.sniffing import XLSX_MAGIC

SHEETS = (
    "gpu_timeline", "ops_summary_by_category", "ops_summary", "ops_unique_args",
    "unified_perf_summary", "GEMM", "kernel_summary", "short_kernel_histogram",
    "short_kernels_summary", "coll_analysis", "nccl_summary_implicit_sync", "nccl_summary_long",
    "nccl_long", "nccl_implicit_sync", "straggler_summary",
)  # fmt: skip
"""Of its reports of one rank and of all ranks; a report has some of them, and may have others."""

MOST_BYTES = 256 << 20
"""Larger workbooks are not opened: they have to be decompressed whole."""

Cell: TypeAlias = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet: columns of cells by name, in the order of the file."""

    columns: dict[str, list[Cell]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def rows(self) -> list[dict[str, Cell]]:
        """One dictionary a row."""
        names = list(self.columns)
        return [
            dict(zip(names, row, strict=True)) for row in zip(*self.columns.values(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class TraceLensReport:
    """One workbook."""

    path: Path
    sheets: dict[str, Sheet]

    def sheet(self, name: str, needed: tuple[str, ...] = ()) -> Sheet:
        """A sheet that has at least the columns `needed`.

        Raises:
            RequestError: the workbook has no such sheet, or the sheet lacks one of them.
        """
        if name not in self.sheets:
            raise RequestError(
                f"{self.path} has no sheet {name!r}",
                hint=f"It has: {', '.join(self.sheets) or 'none'}.",
            )
        found = self.sheets[name]
        missing = [column for column in needed if column not in found.columns]
        if missing:
            raise RequestError(
                f"sheet {name!r} of {self.path} has no column {', '.join(map(repr, missing))}",
                hint=f"It has: {', '.join(found.columns)}.",
            )
        return found


def read_tracelens_report(path: Path) -> TraceLensReport:
    """The known sheets of a report of TraceLens; others stay unread.

    Raises:
        RequestError: the file cannot be read, is no xlsx workbook, has none of the sheets, or the
            library to read it is not installed.
    """
    try:
        import fastexcel
    except ImportError as error:
        raise RequestError(
            f"{path} is a workbook, and the library to read it is not installed",
            hint="pip install 'gemmetry[analysis]'.",
        ) from error
    # It warns of every column without a value, which is no fault.
    logging.getLogger("fastexcel.types.dtype").setLevel(logging.ERROR)
    try:
        with path.open("rb") as file:
            magic = file.read(len(XLSX_MAGIC))
        size = path.stat().st_size
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror or error}") from error
    if magic != XLSX_MAGIC or size > MOST_BYTES:
        why = f"is larger than {MOST_BYTES >> 20} MiB" if magic == XLSX_MAGIC else "is no xlsx workbook"
        raise RequestError(f"{path} {why}", hint="Give a report that TraceLens wrote.")
    try:
        workbook = fastexcel.read_excel(path)
        names = [name for name in workbook.sheet_names if name in SHEETS]
        sheets = {name: _sheet(workbook, name) for name in names}
    except fastexcel.FastExcelError as error:
        raise RequestError(
            f"{path} cannot be read as a workbook: {error}",
            hint="Write it again, or give another.",
        ) from error
    if not sheets:
        raise RequestError(
            f"{path} has none of the sheets that TraceLens writes",
            hint=f"It has: {', '.join(workbook.sheet_names[:20])}.",
        )
    return TraceLensReport(path, sheets)


def _sheet(workbook: Any, name: str) -> Sheet:
    loaded = workbook.load_sheet(name, dtype_coercion="coerce")
    frame = loaded.to_polars()
    return Sheet({column: [_cell(v) for v in frame[column].to_list()] for column in frame.columns})


def _cell(value: object) -> Cell:
    if value is None or isinstance(value, (int, str, bool)):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    return str(value)
