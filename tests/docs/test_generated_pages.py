"""The pages that ``docs/generate/`` prints are up to date and complete."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from gemmetry.dispatches.results import PRESETS
from gemmetry.documents.tracelens import SHEETS
from gemmetry.documents.tracelens_workbooks import OUR_SHEETS
from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.options import ALIASES, KEYS, RETIRED
from gemmetry.selftest.submissions import ATTACKS
from gemmetry.traces.report import TraceReport, kernels_table, own_tables

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SCRIPTS = [
    script
    for script in sorted((DOCS / "generate").glob("*.py"))
    if f"{script.name} > docs/" in script.read_text(encoding="utf-8") and script.stem != "attacks"
]
"""Those that print a page; another one writes data that need files from elsewhere, and that of the
attacks takes minutes."""
NEEDS = {"support": ("torch", "triton")}
"""Packages whose absence would change a page."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_page_is_up_to_date_and_names_the_command_that_writes_it(script, capsys):
    for package in NEEDS.get(script.stem, ()):
        pytest.importorskip(package)
    page = DOCS / f"{script.stem.replace('_', '-')}.md"
    command = f"python docs/generate/{script.name} > docs/{page.name}"
    runpy.run_path(str(script), run_name="__main__")
    text = page.read_text(encoding="utf-8")
    assert text == capsys.readouterr().out, f"run: {command}"
    assert f"`{command}`" in text


def test_every_attack_is_on_the_page():
    page = (DOCS / "attacks.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| (.*?) \| (\w+) \|", page, re.MULTILINE)
    assert [(name, what) for name, what, _ in listed] == [(one.name, one.what) for one in ATTACKS]
    assert {ruling for _, _, ruling in listed} <= {"wrong", "cheated", "refused"}


def test_every_option_and_alias_is_on_the_page():
    page = (DOCS / "command-line.md").read_text(encoding="utf-8")
    for key in KEYS.values():
        assert key.option in page or f"`{key.name} " in page
    for alias in ALIASES:
        assert f"--{alias.replace('_', '-')}" in page
    for old in RETIRED:
        assert old.option in page


def test_every_column_and_preset_is_documented():
    page = (DOCS / "columns.md").read_text(encoding="utf-8")
    for column in COLUMNS:
        assert page.count(f"| `{column.name}` |") == 1
        assert len(column.description) > 3
    for preset in PRESETS:
        assert f"- `{preset}`: " in page


def test_every_sheet_and_column_of_a_trace_report_is_explained():
    page = (DOCS / "trace-report-sheets.md").read_text(encoding="utf-8")
    for sheet in SHEETS:
        assert f"### {sheet.name}\n" in page
        for column in sheet.columns:
            assert f"| `{column.name}` |" in page
    own = own_tables(TraceReport())
    assert {table.name for table in own} == set(OUR_SHEETS)
    for table in (*own, kernels_table(())):
        section = page.partition(f"### {table.name}\n")[2].partition("\n##")[0]
        for column in table.columns:
            assert column.description, (table.name, column.name)
            assert f"| `{column.name}` | {column.unit} | {column.description} |" in section


def test_every_sheet_that_tracelens_wrote_is_written():
    text = (ROOT / "tests" / "data" / "tracelens_sheets.json").read_text(encoding="utf-8")
    assert set(json.loads(text)["headings"]) == {sheet.name for sheet in SHEETS}
