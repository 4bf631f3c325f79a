from __future__ import annotations

import io
import re
import sys

import pytest

from gemmetry.cli.console import command_line, note, stderr_console, stdout_console
from gemmetry.cli.main import run

COMMAND = "gemmetry trace report gemmetry-out/profile-0123456789 -o report.html"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_results_and_notes_go_to_different_streams(capsys):
    stdout_console().print("result")
    stderr_console().print("progress")
    note("note")
    captured = capsys.readouterr()
    assert captured.out == "result\n"
    assert captured.err == "progress\nnote\n"


@pytest.mark.parametrize("width", [60, 80])
def test_notes_and_errors_break_between_words_on_a_terminal(monkeypatch, width):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    status = run(["profile", "--shapes", "64,64,64", "--providers", "nobody"])
    note("the traces of this run can be read with a command that is longer than a line:",
         command=COMMAND)  # fmt: skip
    assert status == 2
    text = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    lines = text.splitlines()
    assert sum(line.startswith(("error: ", "hint: ")) for line in lines) >= 2
    assert len(lines) > 5
    assert all(len(line) <= width for line in lines)
    words = " ".join(text.replace(" \\\n", " ").split())
    for part in ("unknown provider 'nobody'", "'64,64,64' may be one shape or 3 squares", COMMAND):
        assert part in words


def test_piped_tables_are_wide_unless_a_width_is_given(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert stdout_console().width == 160
    monkeypatch.setenv("COLUMNS", "80")
    assert stdout_console().width == 80
    monkeypatch.setenv("COLUMNS", "many")
    assert stdout_console().width == 160


def test_the_command_line_can_be_copied(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/gemmetry", "profile", "--dispatches", "a* b"])
    assert command_line() == "gemmetry profile --dispatches 'a* b'"
