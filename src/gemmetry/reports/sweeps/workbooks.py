"""The workbooks of a sweep, in TraceLens' sheets and columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gemmetry.analysis.sweeps.model import Point, RankFacts, Sweep
from gemmetry.analysis.sweeps.products.traces import bare_point
from gemmetry.analysis.traces.report import build_report
from gemmetry.domain.tables import Column, Table
from gemmetry.reports.tables.files import write_atomically
from gemmetry.reports.tables.xlsx import Look, workbook
from gemmetry.reports.traces.workbook import trace_workbook
from gemmetry.traces.model import Trace

_LOOKS = {
    "full_config": Look(width=22), "type": Look(width=22), "meaning": Look(width=80),
    "source_file": Look(width=26), "reason": Look(width=40), "operation_name": Look(width=18),
    "Collective name": Look(width=22),
}  # fmt: skip

RANK_HOOK = f"{__name__}:write_rank_workbook"
"""Names :func:`write_rank_workbook` for the processes that read traces."""


def rank_workbooks(folder: Path, sweep: Sweep, point: Point) -> str:
    """The beginning of the paths of the workbooks of the traces of `point`, below the `folder` of
    the analysis."""
    return bare_point(point, has_repeats=sweep.repeats > 1).rank_reports(folder)


def write_rank_workbook(trace: Trace, facts: RankFacts, start: str) -> Path:
    """Write the report of a trace, as ``gemmetry trace report`` does, while it is in memory.

    Args:
        start: beginning of its path, to which the rank is added, or the name of the file where it
            is not known.

    Raises:
        RequestError: XlsxWriter is not installed. StorageError: not writable.
    """
    file = trace.file.name.partition(".")[0]
    path = Path(f"{start}{file if facts.rank is None else f'rank{facts.rank}'}.xlsx")
    write_atomically(path, trace_workbook(build_report([trace], {})))
    return path


def write_workbook(path: Path, tables: Sequence[Table]) -> None:
    """Write `tables`, and a sheet with the meanings of their columns.

    Raises:
        RequestError: XlsxWriter is not installed. StorageError: not writable.
    """
    write_atomically(path, workbook([*tables, _meanings(tables)], _LOOKS))


def _meanings(tables: Iterable[Table]) -> Table:
    rows = [(table.name, c.name, c.unit, c.description) for table in tables for c in table.columns]
    return Table("columns", tuple(map(Column, ("sheet", "column", "unit", "meaning"))), rows)
