from __future__ import annotations

import gzip
import random
import sqlite3
from pathlib import Path

import pytest

from gemmetry.formats.sniffing import Kind, kind_of

SAMPLES = Path(__file__).parents[1] / "data" / "traces"


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.*")), ids=lambda path: path.name)
def test_real_files(path):
    expected = Kind.KINETO
    if "_et_" in path.name:
        expected = Kind.CHAKRA
    elif "results" in path.name:
        expected = Kind.ROCPROFV3_JSON
    elif path.suffix == ".csv":
        expected = Kind.ROCPROFV3_CSV
    elif path.suffix == ".md":
        expected = Kind.OTHER
    assert kind_of(path) is expected


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", Kind.OTHER),
        (b"\x00\x01", Kind.OTHER),
        (b"[]", Kind.KINETO),
        (b' [ {"ph": "X"}]', Kind.KINETO),
        (b'[{"a": 1}]', Kind.JSON),
        (b'\xef\xbb\xbf{"traceEvents": [', Kind.KINETO),
        (b'{"note": "\\"traceEvents\\": [", "nodes": []}', Kind.JSON),
        (b'{"nodes": [], "traceEvents": []}', Kind.KINETO),
        (b'{"schema": "1.1.1", "nodes": []}', Kind.CHAKRA),
        (b'{"a": "' + b"x" * 200_000 + b'", "traceEvents": []}', Kind.KINETO),
        (b"PK\x03\x04", Kind.WORKBOOK),
        (b"SQLite format 3\x00", Kind.OTHER),
        (b"\x1f\x8b\x08", Kind.OTHER),
        ('{"traceEvents": []}'.encode("utf-16"), Kind.OTHER),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_by_the_first_bytes(tmp_path, content, kind):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    assert kind_of(path) is kind
    if content[:2] != b"\x1f\x8b":
        path.write_bytes(gzip.compress(content))
        assert kind_of(path) is (Kind.OTHER if content.startswith(b"SQLite") else kind)


def test_a_compressed_file_that_ends_before_its_key_is_cut(tmp_path):
    path = tmp_path / "file.json"
    head = (
        b'{"note": "'
        + random.Random(1).randbytes(200_000).hex().encode()
        + b'", "traceEvents": []}'
    )
    path.write_bytes(gzip.compress(head)[:150_000])
    assert kind_of(path) is Kind.CUT
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + head)[:150_000])
    assert kind_of(path) is Kind.KINETO


def test_a_database_of_something_else(tmp_path):
    path = tmp_path / "file.db"
    opened = sqlite3.connect(path)
    opened.execute("CREATE TABLE x (y)")
    opened.close()
    assert kind_of(path) is Kind.OTHER


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"a": 1}\n', Kind.JSON),
        ('{"a": {"b": 1}', Kind.JSON),
        ('{"a": {"b": 1', Kind.CUT),
        ("{", Kind.CUT),
        ('{"traceEvents": [', Kind.KINETO),
    ],
)
def test_a_document_that_ends_early_is_told_from_another_one(tmp_path, text, kind):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert kind_of(path) is kind
