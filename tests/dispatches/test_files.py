"""Files of results: columns, formats, and what is refused; their texts are golden outputs."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import zipfile

import fastexcel
import pytest

from gemmetry.dispatches import results
from gemmetry.dispatches.results import record_table, to_json_document, to_workbook, write
from gemmetry.domain import columns as schema
from gemmetry.domain.columns import COLUMNS, SCHEMA_VERSION, RecordColumn, result_schema
from gemmetry.domain.errors import Outcome, RequestError, StorageError, UnknownNameError
from gemmetry.domain.tables import ColumnType
from gemmetry.results.emit import every_form
from gemmetry.results.json_text import json_file
from gemmetry.results.tables import csv_text, frame

NAME = "matmul_8x8x8_f32t_f32t_f32t"
MAGIC = {
    ".csv": b"note,dispatch,", ".json": b"{\n", ".parquet": b"PAR1", ".xlsx": b"PK\x03\x04",
    ".md": b"# ", ".html": b"<!doctype html>", ".xml": b"<?xml", ".png": b"\x89PNG",
    ".svg": b"<?xml",
}  # fmt: skip


@pytest.mark.parametrize("suffix", every_form())
def test_the_suffix_picks_the_format_and_a_failed_write_leaves_the_old_file(
    result_set, small_result_set, tmp_path, monkeypatch, suffix
):
    if suffix in (".png", ".svg"):
        result_set = dataclasses.replace(small_result_set, title="other")
    path = tmp_path / f"out{suffix.upper() if suffix == '.csv' else suffix}"
    write(result_set, path)
    written = path.read_bytes()
    assert written.startswith(MAGIC[suffix])

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError):
        write(small_result_set, path)
    assert path.read_bytes() == written
    assert list(tmp_path.iterdir()) == [path]


def test_what_takes_effect_and_what_is_refused(small_result_set, tmp_path):
    for options in ({"suffix": "json", "columns": ["provider"]}, {"suffix": "json", "append": True},
                    {"suffix": "csv", "columns": ["providre"]},
                    {"suffix": "html", "baseline": "cublas"}):  # fmt: skip
        with pytest.raises((RequestError, UnknownNameError)):
            write(small_result_set, tmp_path / f"out.{options.pop('suffix')}", **options)
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "out.csv"
    for _ in range(2):
        write(small_result_set, path, append=True, columns=["provider", "seed"])
    first, *rows = path.read_text().splitlines()
    assert first == "provider,seed"
    assert rows == 2 * rows[: len(small_result_set.records)]


def test_a_column_is_one_declaration(make_record, monkeypatch):
    """The promise of docs/map.md: the schema and every format follow."""
    volume = RecordColumn("volume", ColumnType.INTEGER, value=lambda r, o: o.matmul_shape.m**3)
    for module in (results, schema):
        monkeypatch.setattr(module, "COLUMNS", (*COLUMNS, volume))
    monkeypatch.setitem(results._PRESETS, "gemmetry", (*COLUMNS, volume))
    table = record_table([make_record(NAME)])
    assert table.values("volume") == [512]
    assert csv_text(table.select(["provider", "volume"])) == "provider,volume\ntorch,512\n"
    assert frame(table)["volume"].to_list() == [512]
    properties = result_schema()["properties"]["records"]["items"]["properties"]
    assert properties["volume"]["type"] == ["integer", "null"]


def test_records_are_what_the_published_schema_says(result_set):
    kinds = {"integer": int, "number": (int, float), "array": list, "object": dict,
             "string": str, "null": type(None)}  # fmt: skip
    rules = result_schema()["properties"]["records"]["items"]
    document = json.loads(json_file(to_json_document(result_set)))
    assert document["schema_version"] == SCHEMA_VERSION
    assert list(document["environments"]) == list(result_set.environments)
    assert len(document["records"]) == len(result_set.records)
    for record in document["records"]:
        assert list(record) == rules["required"] == [column.name for column in COLUMNS]
        for name, rule in rules["properties"].items():
            allowed = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
            assert any(isinstance(record[name], kinds[kind]) for kind in allowed), name
            assert "enum" not in rule or record[name] in rule["enum"], name


def test_a_workbook_has_sheets_of_values_and_no_formulas(result_set):
    book = to_workbook(result_set)
    read = fastexcel.read_excel(book)
    assert read.sheet_names == ["records", "failures", "environment", "columns"]
    records, failures, environment, columns = (
        read.load_sheet(name).to_polars().to_dicts() for name in read.sheet_names
    )
    median = result_set.records[0].measurement.median_ns
    assert records[0]["median_ns\n[ns]"] == pytest.approx(median, rel=1e-14)
    assert len(records) == len(result_set.records)
    assert len(failures) == sum(r.outcome is not Outcome.OK for r in result_set.records)
    assert '=HYPERLINK("http://x")' in [row["reason"] for row in failures]
    fields = {row["field"]: row["value"] for row in environment}
    assert fields["cpu"] == "Example CPU @ 2.80GHz"
    assert [row["column"] for row in columns] == [c.name for c in COLUMNS]
    with zipfile.ZipFile(io.BytesIO(book)) as archive:
        sheets = [archive.read(n).decode() for n in archive.namelist() if "xl/worksheets/s" in n]
    assert not any("<f>" in text or "<hyperlink" in text for text in sheets)
    for part in ('state="frozen"', "<autoFilter", 'type="dataBar"'):
        assert part in sheets[0]
