"""Prints ``docs/trace-report-sheets.md``, the sheets of a trace report, from their declarations.

A test asserts that the page is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from gemmetry.documents.tracelens import NOTES, SHEETS
from gemmetry.documents.tracelens_workbooks import OUR_SHEETS
from gemmetry.domain.tables import Column
from gemmetry.results.tables import escape_markdown as escape
from gemmetry.traces.report import TraceReport, kernels_table, own_tables

_HEAD = """\
# Sheets of a trace report

This page is generated:
`python docs/generate/trace_report_sheets.py > docs/trace-report-sheets.md`.

The sheets of [`gemmetry trace report`](trace-report.md), in the order of the workbook. The same
names are the keys of `sheets` in a json report and the names of the csv files in a folder.

## General notes

"""

_OURS = """\
## Gemmetry's own sheets

`gemmetry trace summary`, `gemms`, `shapes` and `collectives` write the same columns with
`--output`.

"""

_WHAT = {
    **OUR_SHEETS,
    "collectives_kernels": "Every kernel that communicates: no sheet of the report, but what "
    "`gemmetry trace collectives --rows kernels` writes.",
}

_THEIRS = """\
With several files, sheets of single traces begin with a column `file`, and with several jobs,
sheets of jobs begin with a column `job`.

"""


def sheets_page() -> str:
    """The whole page as Markdown."""
    notes = "".join(f"- **{escape(about)}**: {escape(note)}\n" for about, note in NOTES)
    own = [*own_tables(TraceReport()), kernels_table(())]
    ours = "\n".join(_section(t.name, _WHAT[t.name], t.columns) for t in own)
    theirs = "\n".join(_section(sheet.name, sheet.what, sheet.columns) for sheet in SHEETS)
    return f"{_HEAD}{notes}\n{_OURS}{ours}\n## Sheets with TraceLens' names\n\n{_THEIRS}{theirs}"


def _section(name: str, what: str, columns: Iterable[Column]) -> str:
    rows = "".join(
        f"| `{column.name}` | {escape(column.unit)} | {escape(column.description)} |\n"
        for column in columns
    )
    head = "| column | unit | meaning |\n| --- | --- | --- |\n"
    return f"### {name}\n\n{what}\n\n{head}{rows}"


if __name__ == "__main__":
    sys.stdout.write(sheets_page())
