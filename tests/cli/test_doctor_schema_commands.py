from __future__ import annotations

import json
from pathlib import Path


def test_doctor_tells_machine_and_providers(cli):
    ended = cli("doctor", "--json")
    assert ended.status == 0
    rows = {row["capability"]: row for row in json.loads(ended.stdout)["capabilities"]}
    assert rows["CPU"]["available"]
    assert rows["provider null"]["available"]
    assert not rows["provider user"]["available"]
    for row in rows.values():
        assert row["detail"]


def test_schemas(cli):
    spec = json.loads(cli("schema").stdout)
    assert "problem_m" in spec["properties"]
    assert "records" in json.loads(cli("schema", "results").stdout)["properties"]
    assert cli("schema", "-o", "s.json").status == 0
    assert json.loads(Path("s.json").read_text()) == spec
    assert cli("schema", "nothing").status == 2
