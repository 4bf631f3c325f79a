from __future__ import annotations

import json

import pytest

from gemmetry.dispatches import results
from gemmetry.dispatches.results import PRESETS, record_table, select_columns, to_json_document
from gemmetry.domain import columns as schema
from gemmetry.domain.columns import COLUMNS, SCHEMA_VERSION, RecordColumn, result_schema
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.tables import ColumnType
from gemmetry.results.json_text import json_file
from gemmetry.results.tables import csv_text, frame

NAME = "matmul_8x8x8_f32t_f32t_f32t"


def test_default_is_every_column_of_the_domain():
    assert [c.name for c in select_columns(None)] == [c.name for c in COLUMNS]


def test_presets_and_names_mix_without_repetition():
    headings = [c.name for c in select_columns(["gflops", "summary", "gflops", "seed"])]
    assert headings[0] == "gflops"
    assert headings.count("gflops") == 1
    assert headings[-1] == "seed"


def test_every_preset_expands():
    for preset in PRESETS:
        assert len(select_columns([preset])) > 5


def test_tags_lead_and_replace_their_column(make_record):
    records = [make_record(NAME, tags={"run": "1"}), make_record(NAME, tags={"host": "a"})]
    table = record_table(records)
    assert table.names[:3] == ("run", "host", "dispatch")
    assert "tags" not in table.names
    assert table.values("run") == ["1", None]
    assert table.values("host") == [None, "a"]


def test_a_tag_called_like_a_column_keeps_both(make_record):
    record = make_record(NAME, tags={"provider": "mine"})
    table = record_table([record], ["provider"])
    assert table.records() == [{"tag:provider": "mine", "provider": "torch"}]
    assert record_table([record], ["provider"], has_tags=False).names == ("provider",)


def test_a_column_is_one_declaration(make_record, monkeypatch):
    """The promise of docs/map.md: the schema and every format follow."""
    volume = RecordColumn("volume", ColumnType.INTEGER, value=lambda r, o: o.matmul_shape.m**3)
    for module in (results, schema):
        monkeypatch.setattr(module, "COLUMNS", (*COLUMNS, volume))
    table = record_table([make_record(NAME)])
    assert table.values("volume") == [512]
    assert csv_text(table.select(["provider", "volume"])) == "provider,volume\ntorch,512\n"
    assert frame(table)["volume"].to_list() == [512]
    properties = result_schema()["properties"]["records"]["items"]["properties"]
    assert properties["volume"]["type"] == ["integer", "null"]


def test_unknown_column_names_the_nearest():
    with pytest.raises(UnknownNameError, match="median_ns"):
        select_columns(["median"])


def test_document_survives_json_and_has_every_key_in_every_record(result_set):
    document = json.loads(json_file(to_json_document(result_set)))
    assert document["schema_version"] == SCHEMA_VERSION
    assert len(document["records"]) == len(result_set.records)
    for record in document["records"]:
        assert list(record) == [column.name for column in COLUMNS]
    assert list(document["environments"]) == list(result_set.environments)
    assert document["command"] == result_set.command


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
