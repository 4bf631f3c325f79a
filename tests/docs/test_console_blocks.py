"""What pages print of the tests' data is what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gemmetry.cli.main import run

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n\$ gemmetry (.*?)(?<!\\)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks():
    """Commands on recorded data, and what a page shows of their output."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        for command, shown in BLOCK.findall(page.read_text(encoding="utf-8")):
            if "tests/data" in command:
                arguments = shlex.split(command.replace("\\\n", " "))
                yield pytest.param(arguments, shown.splitlines(), id=f"{page.stem}:{arguments[:3]}")


BLOCKS = list(_blocks())


def test_pages_have_such_blocks():
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize(("arguments", "shown"), BLOCKS)
def test_a_page_shows_what_the_command_prints(arguments, shown, monkeypatch, capsys):
    """Lines that are left out are replaced by one with three dots."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(arguments) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    place = 0
    for before, line in zip(["", *shown], shown, strict=False):
        if line != "…":
            assert line in printed[place:], f"renew the page: {line}"
            found = printed.index(line, place)
            assert before == "…" or found == place, f"renew the page: lines before {line!r}"
            place = found + 1
    assert shown[-1] == "…" or place == len(printed), "renew the page: its end"
