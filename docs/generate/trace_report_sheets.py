"""Prints ``docs/trace-report-sheets.md``, the sheets of a trace report, from their declarations.

A test asserts that the page is up to date.
"""

from __future__ import annotations

import sys

from gemmetry.reports.tables.markdown import escape
from gemmetry.reports.traces.workbook import NOTES, OUR_SHEETS
from gemmetry.traces.tracelens.columns import SheetKind
from gemmetry.traces.tracelens.sheets import SHEETS

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

| sheet | contents |
| --- | --- |
"""

_THEIRS = """\
With several files, sheets of single traces begin with a column `file`, and with several jobs,
sheets of jobs begin with a column `job`.

"""


def sheets_page() -> str:
    """The whole page as Markdown."""
    notes = "".join(f"- **{escape(about)}**: {escape(note)}\n" for about, note in NOTES)
    ours = "".join(f"| `{name}` | {escape(what)} |\n" for name, what in OUR_SHEETS.items())
    theirs = "\n".join(map(_section, SHEETS))
    return f"{_HEAD}{notes}\n{_OURS}{ours}\n## Sheets with TraceLens' names\n\n{_THEIRS}{theirs}"


def _section(sheet: SheetKind) -> str:
    rows = "".join(
        f"| `{column.name}` | {escape(column.unit)} | {escape(column.description)} |\n"
        for column in sheet.columns
    )
    head = "| column | unit | meaning |\n| --- | --- | --- |\n"
    return f"### {sheet.name}\n\n{sheet.what}\n\n{head}{rows}"


if __name__ == "__main__":
    sys.stdout.write(sheets_page())
