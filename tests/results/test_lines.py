from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gemmetry.results.lines import print_line, print_pointer

SENTENCE = "error: the spec of this experiment was made by another plan, and nothing was touched"


def _printed(text, *, width, terminal=True, **options):
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    print_line(Text(text), console, **options)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [20, 60, 80])
@pytest.mark.parametrize("indent", [0, 4])
def test_a_terminal_gets_lines_that_break_between_words(width, indent):
    lines = _printed(SENTENCE, width=width, indent=indent).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= width
    assert [word for line in lines for word in line.split()] == SENTENCE.split()
    assert all(line.startswith(" " * indent) and line == line.rstrip() for line in lines[1:])


def test_what_has_no_place_to_break_stays_whole():
    """A sentence in a file, and a word that is wider than the terminal; cells are counted, not
    characters."""
    assert _printed(SENTENCE, width=20, terminal=False) == f"{SENTENCE}\n"
    path = "/" + "a" * 90
    assert _printed(f"  wrote {path} today", width=60, indent=4).splitlines() == [
        "  wrote", f"    {path}", "    today",
    ]  # fmt: skip
    assert _printed(path, width=60) == f"{path}\n"
    assert _printed("行行 行行\n\nx", width=6).splitlines() == ["行行", "行行", "", "x"]


@pytest.mark.parametrize("text", ["a bb " + "c" * 50 + " dd", "c" * 50, "  " + "行" * 50 + " x"])
def test_a_word_may_be_folded(text):
    lines = _printed(text, width=20, indent=4, fold=True).splitlines()
    assert all(cell_len(line) <= 20 for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_styles_survive_a_break():
    console = Console(file=io.StringIO(), width=12, force_terminal=True, color_system="standard")
    print_line(Text("crash ", style="red").append("of something", style="bold"), console)
    assert "\x1b[1;31msomething" in console.file.getvalue().splitlines()[1]


def test_a_command_that_does_not_fit_has_lines_that_can_be_copied():
    command = "gemmetry trace report 'some folder' -o report.html"
    wide, narrow = (Console(file=io.StringIO(), width=width, force_terminal=True,
                            color_system=None) for width in (80, 40))  # fmt: skip
    for console in (wide, narrow):
        print_pointer("read them:", command, console)
    assert wide.file.getvalue() == f"read them: {command}\n"
    first, *rest = narrow.file.getvalue().splitlines()
    assert first == "read them:"
    assert " ".join(line.strip(" \\$") for line in rest) == command
    assert all(line.endswith("\\") for line in rest[:-1])
