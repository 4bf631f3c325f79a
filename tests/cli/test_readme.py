"""The README and the pages keep to what the command line can do."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gemmetry.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^[ $]*(gemmetry (?:[^\n\\`|]|\\\n)+)$", re.M)


def commands(page: Path) -> list[list[str]]:
    """Command lines that stand on lines of their own, and between backticks in tables."""
    text = page.read_text()
    found = [match.replace("\\\n", " ") for match in COMMAND.findall(text)]
    if page.name == "README.md":
        found += re.findall(r"`(gemmetry [^`]+)`", text)
    return [shlex.split(line, comments=True)[1:] for line in found]


_NEEDS_FILES = {"DIR", "--spec", "[OPTIONS]", "--generated-dir"}
"""What ``generate`` wrote is profiled in ``test_documents.py``."""


def profile_commands() -> list[tuple[str, list[str]]]:
    return [
        (page.name, words[1:])
        for page in PAGES
        for words in commands(page)
        if words[0] == "profile" and not _NEEDS_FILES & set(words)
    ]


def test_the_readme_is_short_and_whole():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150
    assert "@@" not in text
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_output_is_left_to_be_pasted(page):
    text = page.read_text()
    assert "@@" not in text
    assert "<!-- output" not in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page):
    for words in commands(page):
        assert words[0] in COMMANDS or words[0].startswith("-"), words


def test_profile_commands_are_found():
    assert len(profile_commands()) >= 8


@pytest.mark.parametrize(("page", "words"), profile_commands())
def test_profile_commands_are_understood(cli, page, words, tmp_path):
    for name in ("my_gemm.py", "my_wrong_gemm.py"):
        (tmp_path / "examples").mkdir(exist_ok=True)
        (tmp_path / "examples" / name).write_text((ROOT / "examples" / name).read_text())
    (tmp_path / "my_gemm.py").write_text("def function(a, b):\n    return a @ b\n")
    ended = cli("profile", *words, "--dry-run")
    no_such_device = "there is no device" in ended.stderr
    assert ended.status == 0 or no_such_device, f"{page}: {ended.stderr}"
