from __future__ import annotations

from gemmetry.domain.columns import COLUMNS, result_schema
from gemmetry.domain.specs.keys import ALIASES, KEYS
from gemmetry.domain.specs.model import spec_schema


def test_the_spec_schema_has_every_key_with_its_text():
    properties = spec_schema()["properties"]
    assert set(properties) == set(KEYS) | set(ALIASES)
    for name, key in KEYS.items():
        assert properties[name]["description"] == key.text
    assert spec_schema()["additionalProperties"] is False


def test_the_result_schema_has_every_column():
    record = result_schema()["properties"]["records"]["items"]
    assert list(record["properties"]) == record["required"] == [c.name for c in COLUMNS]
    for column in COLUMNS:
        assert column.description in record["properties"][column.name]["description"]


def test_measured_values_may_be_null_and_identity_may_not():
    properties = result_schema()["properties"]["records"]["items"]["properties"]
    assert properties["median_ns"]["type"] == ["number", "null"]
    assert properties["flops"]["type"] == "integer"
    for name in ("effective_samples", "harness_overhead_ns", "others_cpu_share", "run_delay_share"):
        assert properties[name]["type"] == ["number", "null"]
    assert properties["marks"] == {
        "type": "array",
        "items": {"type": "string"},
        "description": properties["marks"]["description"],
    }
    assert None in properties["stage"]["enum"]
    assert "ok" in properties["outcome"]["enum"]
