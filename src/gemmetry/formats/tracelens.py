"""TraceLens's xlsx reports -> neutral tables. Columns are found by name, since their order is not
stable."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.formats.opening import XLSX_MAGIC, open_decompressed
from gemmetry.formats.xlsx import Cell, Workbook, WorkbookError, by_column

SHEETS = (
    "gpu_timeline", "ops_summary_by_category", "ops_summary", "ops_unique_args",
    "unified_perf_summary", "GEMM", "SDPA_fwd", "SDPA_bwd", "CONV_fwd", "CONV_bwd",
    "BinaryElementwise", "UnaryElementwise", "Normalization", "Reduce_fwd", "Reduce_bwd",
    "kernel_summary", "short_kernel_histogram", "short_kernels_summary", "coll_analysis",
    "nccl_summary_implicit_sync", "nccl_summary_long", "nccl_long", "nccl_implicit_sync",
    "straggler_summary",
)  # fmt: skip
"""Sheets of its reports on one rank and on all ranks; a report has some of them, and may have
others."""

MOST_BYTES = 256 << 20
"""Larger workbooks are rejected, as workbooks are held in memory."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet: its columns by name, in the order of the file."""

    columns: dict[str, list[Cell]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def rows(self) -> list[dict[str, Cell]]:
        """One dictionary per row."""
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
        """A sheet with at least the columns `needed`.

        Raises:
            RequestError: the workbook has no such sheet, or the sheet lacks one of the columns.
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


def read_tracelens_report(path: Path, only: Collection[str] = SHEETS) -> TraceLensReport:
    """The known sheets of a TraceLens report, or `only` some of them; other sheets are not read.

    Raises:
        RequestError: the file cannot be read, is not an xlsx workbook, or has none of the sheets.
    """
    hint = "Give a report that TraceLens wrote."
    try:
        with open_decompressed(path) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read: {error.strerror or error}", hint=hint
        ) from error
    if not content.startswith(XLSX_MAGIC):
        raise RequestError(f"{path} is not an xlsx workbook", hint=hint)
    if len(content) > MOST_BYTES:
        raise RequestError(f"{path} is larger than {MOST_BYTES >> 20} MiB", hint=hint)
    try:
        workbook = Workbook(content)
        names = [name for name in workbook.names if name in only]
        sheets = {name: Sheet(by_column(workbook.rows(name))) for name in names}
    except WorkbookError as error:
        raise RequestError(
            f"{path} cannot be read as a workbook: {error}",
            hint="Export it again, or give another workbook.",
        ) from error
    if not sheets:
        raise RequestError(
            f"{path} has none of the sheets that TraceLens writes",
            hint=f"It has: {', '.join(workbook.names[:20]) or 'none'}.",
        )
    return TraceLensReport(path, sheets)
