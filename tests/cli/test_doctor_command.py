from __future__ import annotations

from rich.console import Console

from gemmetry.providers.null_provider.provider import NullProvider


def test_doctor_lists_machine_and_providers(cli):
    rows = {row["capability"]: row for row in cli.json("doctor")["capabilities"]}
    assert rows["CPU"]["available"] and rows["provider null"]["available"]
    assert not rows["provider user"]["available"] and "provider mutant" not in rows
    assert all(row["detail"] for row in rows.values())


def test_doctor_is_read_at_80_columns(cli, monkeypatch):
    terminal = Console(width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr("gemmetry.cli.machine.stdout_console", lambda: terminal)
    lines = cli("doctor").stdout.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert any(line.startswith("provider null") and "yes" in line for line in lines)
    (user,) = (line for line in lines if line.startswith("provider user"))
    assert "no kernel was given: add --kernel" in user
    assert any(line.lstrip().startswith("→ ") for line in lines)


def test_piped_sentences_are_whole_lines(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    sentence = "It only pretends, and it says so in a sentence of more than forty characters."
    monkeypatch.setattr(NullProvider, "doctor_notes", lambda self: (sentence,))
    lines = cli("doctor").stdout.splitlines()
    assert any(line.startswith("provider null") and line.endswith(sentence) for line in lines)
    assert all(line == line.rstrip() for line in lines)
