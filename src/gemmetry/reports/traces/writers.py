"""Reports of traces as files; the suffix picks the format."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from gemmetry.analysis.traces.report import TraceReport
from gemmetry.domain.errors import RequestError
from gemmetry.reports.extras import check_installed
from gemmetry.reports.tables.files import check_writable, write_atomically, written_together
from gemmetry.reports.tables.writing import is_folder
from gemmetry.traces import TRACE_SCHEMA_VERSION

SUFFIXES = (".xlsx", ".html", ".json", ".md")


def check_reports(paths: Iterable[Path]) -> None:
    """Check, before any work, that the reports can be written.

    Raises:
        RequestError: a suffix is unknown, or a library is missing. StorageError: not writable.
    """
    for path in paths:
        if is_folder(path):
            check_writable(path / "gpu_timeline.csv")
            continue
        if path.suffix.lower() not in SUFFIXES:
            raise RequestError(
                f"unknown format of {path}: unknown suffix {path.suffix!r}",
                hint=f"Give a name that ends in one of {', '.join(SUFFIXES)}, or a folder "
                "for one CSV file per sheet.",
            )
        if path.suffix.lower() == ".xlsx":
            check_installed("xlsxwriter", extra="analysis")
        check_writable(path)


def write_report(report: TraceReport, path: Path, *, command: str = "") -> None:
    """Write `report`, whole or not at all; a folder gets a CSV file of each sheet.

    An HTML page shows `command`, as it was typed.

    Raises:
        RequestError: a library is missing. StorageError: not writable.
    """
    if is_folder(path):
        from gemmetry.reports.tables.csv import csv_lines

        with written_together():
            for table in report.tables:
                rows = ([str(v) if isinstance(v, bool) else v for v in row] for row in table.rows)
                text = csv_lines([table.names, *rows])
                write_atomically(path / f"{table.name}.csv", text.encode("utf-8", "replace"))
        return
    match path.suffix.lower():
        case ".xlsx":
            from gemmetry.reports.traces.workbook import trace_workbook

            content = trace_workbook(report)
        case ".html":
            from gemmetry.reports.traces.html import trace_page

            created = datetime.now(UTC).isoformat(timespec="seconds")
            page = trace_page(report, command=command, created=created)
            content = page.encode("utf-8", "replace")
        case ".md":
            from gemmetry.reports.traces.markdown import trace_markdown

            content = trace_markdown(report).encode("utf-8", "replace")
        case _:
            content = report_json(report)
    write_atomically(path, content)


def report_json(report: TraceReport) -> bytes:
    """One JSON document: ``sheets`` with a list of rows each, ``notes`` and ``errors``."""
    from gemmetry.reports.tables.json import encoded

    return encoded(
        {
            "schema_version": TRACE_SCHEMA_VERSION,
            "sheets": {table.name: table.records() for table in report.tables},
            "notes": report.notes,
            "errors": [{"file": file, "error": text} for file, text in report.errors.items()],
        }
    )
