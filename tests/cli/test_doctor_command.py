from __future__ import annotations

import json

from rich.console import Console

from gemmetry.providers.null_provider import NullProvider


def test_doctor_tells_machine_and_providers(cli):
    ended = cli("doctor", "--json")
    assert ended.status == 0
    rows = {row["capability"]: row for row in json.loads(ended.stdout)["capabilities"]}
    assert rows["CPU"]["available"]
    assert rows["provider null"]["available"]
    assert not rows["provider user"]["available"]
    for row in rows.values():
        assert row["detail"]


def test_doctor_is_read_at_80_columns(cli, monkeypatch):
    monkeypatch.setattr("gemmetry.cli.console.stdout_console", lambda: Console(width=80))
    lines = cli("doctor").stdout.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert any(line.startswith("provider null") and "yes" in line for line in lines)
    user = next(i for i, line in enumerate(lines) if line.startswith("provider user"))
    assert "no kernel was given: add --kernel" in lines[user]
    assert any(line.lstrip().startswith("→ ") for line in lines)


def test_doctor_tells_what_a_provider_cannot_do(cli, monkeypatch):
    monkeypatch.setattr(NullProvider, "doctor_notes", lambda self: ("It only pretends.",))
    ended = cli("doctor", "--json")
    rows = {row["capability"]: row for row in json.loads(ended.stdout)["capabilities"]}
    assert rows["provider null"]["detail"].endswith("; It only pretends.")
