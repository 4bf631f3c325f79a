from __future__ import annotations

import json

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


def test_doctor_tells_what_a_provider_cannot_do(cli, monkeypatch):
    monkeypatch.setattr(NullProvider, "doctor_notes", lambda self: ("It only pretends.",))
    ended = cli("doctor", "--json")
    rows = {row["capability"]: row for row in json.loads(ended.stdout)["capabilities"]}
    assert rows["provider null"]["detail"].endswith("; It only pretends.")
