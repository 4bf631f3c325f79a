from __future__ import annotations

import json
from pathlib import Path


def test_schemas(cli):
    spec = json.loads(cli("schema").stdout)
    assert "problem_m" in spec["properties"]
    assert "records" in json.loads(cli("schema", "results").stdout)["properties"]
    assert cli("schema", "-o", "s.json").status == 0
    assert json.loads(Path("s.json").read_text()) == spec
    assert cli("schema", "nothing").status == 2
