from __future__ import annotations

import sys

from gemmetry.cli.console import command_line, note, stderr_console, stdout_console


def test_results_and_notes_go_apart(capsys):
    stdout_console().print("result")
    stderr_console().print("progress")
    note("note")
    captured = capsys.readouterr()
    assert captured.out == "result\n"
    assert captured.err == "progress\nnote\n"


def test_piped_tables_are_wide_unless_a_width_is_told(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert stdout_console().width == 160
    monkeypatch.setenv("COLUMNS", "80")
    assert stdout_console().width == 80
    monkeypatch.setenv("COLUMNS", "many")
    assert stdout_console().width == 160


def test_the_command_line_can_be_pasted(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/gemmetry", "profile", "--dispatches", "a* b"])
    assert command_line() == "gemmetry profile --dispatches 'a* b'"
