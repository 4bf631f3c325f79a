from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gemmetry.domain.columns import COLUMNS
from gemmetry.reports.columns_page import columns_page
from gemmetry.reports.tables.columns import PRESETS

PAGE = Path(__file__).parents[2] / "docs" / "columns.md"


def test_every_column_and_preset_is_documented():
    text = PAGE.read_text(encoding="utf-8")
    for column in COLUMNS:
        assert text.count(f"| `{column.name}` |") == 1
        assert len(column.description) > 3
    for preset in PRESETS:
        assert f"- `{preset}`: " in text


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == columns_page()


def test_the_documented_command_prints_the_page():
    command = [sys.executable, "-m", "gemmetry.reports.columns_page"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.decode() == columns_page()
