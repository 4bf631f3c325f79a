from __future__ import annotations

import json


def test_show_describes_one_dispatch(experiments):
    shown = experiments("show", "a", "fast")
    assert shown.status == 0
    assert "matmul_64x64x64_f32t_f32t_f32t_fast" in shown.stdout
    document = json.loads(experiments("show", "a", "*fast", "--json").stdout)
    assert [record["configuration"] for record in document["records"]] == ["fast"]
    missing = experiments("show", "a", "fasst")
    assert missing.status == 2
    assert missing.stdout == ""
