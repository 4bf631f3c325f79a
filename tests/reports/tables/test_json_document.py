from __future__ import annotations

import json
import math

from gemmetry.domain.columns import COLUMNS, SCHEMA_VERSION
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.resultset import ResultSet
from gemmetry.reports.tables.json_document import json_value, to_json_document, to_json_text
from gemmetry.specs.schema import result_schema

REQUIRED = (
    "dispatch", "provider", "target", "operation", "configuration", "outcome", "reason",
    "verification", "distribution", "median_ns", "ci_low_ns", "ci_high_ns", "sample_count",
    "flops", "bytes", "gflops",
)  # fmt: skip


def test_document_survives_json_and_has_every_key_in_every_record(result_set):
    document = json.loads(to_json_text(to_json_document(result_set)))
    assert document["schema_version"] == SCHEMA_VERSION
    assert len(document["records"]) == len(result_set.records)
    for record in document["records"]:
        assert list(record) == [column.name for column in COLUMNS]
        assert set(REQUIRED) <= set(record)
    assert list(document["environments"]) == list(result_set.environments)
    assert document["command"] == result_set.command


def test_what_does_not_apply_is_null(result_set):
    records = to_json_document(result_set)["records"]
    failed = next(record for record in records if record["outcome"] == "crash")
    assert failed["median_ns"] is None
    assert failed["gflops"] is None
    ok = records[0]
    assert ok["reason"] is None
    assert ok["registers"] is None
    assert ok["epilogue"] == []


def test_lists_and_mappings_are_json_values(make_record):
    record = make_record(
        "matmul_8x8x8_f32t_f32t_f32t_bias_relu",
        marks=("noisy",),
        tags={"run": "7"},
        facts=BuildFacts(registers=64),
    )
    row = to_json_document(ResultSet(title="t", records=[record]))["records"][0]
    assert row["epilogue"] == ["bias", "relu"]
    assert row["marks"] == ["noisy"]
    assert row["tags"] == {"run": "7"}
    assert row["registers"] == 64


def test_numbers_that_json_lacks_become_null():
    assert json_value({"a": math.nan, "b": (1, math.inf)}) == {"a": None, "b": [1, None]}


def test_names_that_are_no_text_are_written_all_the_same():
    assert json.loads(to_json_text({"a": "\udcff"}).encode()) == {"a": "\ufffd"}


def test_records_are_what_the_published_schema_says(result_set):
    kinds = {"integer": int, "number": (int, float), "array": list, "object": dict,
             "string": str, "null": type(None)}  # fmt: skip
    schema = result_schema()["properties"]["records"]["items"]
    for record in to_json_document(result_set)["records"]:
        assert list(record) == schema["required"]
        for name, rule in schema["properties"].items():
            allowed = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
            assert any(isinstance(record[name], kinds[kind]) for kind in allowed), name
            assert "enum" not in rule or record[name] in rule["enum"], name
