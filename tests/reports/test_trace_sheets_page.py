from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from gemmetry.reports.trace_sheets_page import sheets_page
from gemmetry.reports.traces.report import OUR_SHEETS
from gemmetry.traces.tracelens.sheets import SHEETS

PAGE = Path(__file__).parents[2] / "docs" / "trace-report-sheets.md"


def test_every_sheet_and_column_is_explained():
    page = sheets_page()
    for sheet in SHEETS:
        assert f"### {sheet.name}\n" in page
        for column in sheet.columns:
            assert f"| `{column.name}` |" in page
    for name in OUR_SHEETS:
        assert f"| `{name}` |" in page


def test_the_page_is_up_to_date():
    command = [sys.executable, "-m", "gemmetry.reports.trace_sheets_page"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert PAGE.read_text(encoding="utf-8") == done.stdout.decode()


def test_every_sheet_that_tracelens_wrote_is_made():
    path = Path(__file__).parents[1] / "data" / "tracelens_sheets.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    assert set(written["headings"]) == {sheet.name for sheet in SHEETS}
