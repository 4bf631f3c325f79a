"""The documentation builds without a warning: no dead link, no page outside the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_documentation_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the docs extra is not installed")
    command = [
        sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html",
        "-d", str(tmp_path / "doctrees"), str(DOCS), str(tmp_path / "html"),
    ]  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    pages = {path.stem for path in DOCS.glob("*.md")}
    assert pages <= {path.stem for path in (tmp_path / "html").glob("*.html")}


def test_pages_ask_nothing_of_other_servers(tmp_path: Path) -> None:
    settings = (DOCS / "conf.py").read_text()
    assert "://" not in settings
    assert "intersphinx" not in settings
