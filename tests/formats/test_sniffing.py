from __future__ import annotations

import gzip
import random
import sqlite3
from pathlib import Path

import pytest

from gemmetry.formats.readers import Content, foreign, format_of, kineto, rocprofv3

CHAKRA, _, WORKBOOK = foreign.FORMATS
(KINETO,) = kineto.FORMATS
_, CSV, JSON = rocprofv3.FORMATS

SAMPLES = Path(__file__).parents[1] / "data" / "traces"


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.*")), ids=lambda path: path.name)
def test_real_files(path):
    expected = KINETO
    if "_et_" in path.name:
        expected = CHAKRA
    elif "results" in path.name:
        expected = JSON
    elif path.suffix == ".csv":
        expected = CSV
    elif path.suffix == ".md":
        expected = Content.OTHER
    assert format_of(path) is expected


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", Content.OTHER),
        (b"\x00\x01", Content.OTHER),
        (b"[]", KINETO),
        (b' [ {"ph": "X"}]', KINETO),
        (b'[{"a": 1}]', Content.JSON),
        (b'\xef\xbb\xbf{"traceEvents": [', KINETO),
        (b'{"note": "\\"traceEvents\\": [", "nodes": []}', Content.JSON),
        (b'{"nodes": [], "traceEvents": []}', KINETO),
        (b'{"schema": "1.1.1", "nodes": []}', CHAKRA),
        (b'{"a": "' + b"x" * 200_000 + b'", "traceEvents": []}', KINETO),
        (b"PK\x03\x04", WORKBOOK),
        (b"SQLite format 3\x00", Content.OTHER),
        (b"\x1f\x8b\x08", Content.OTHER),
        ('{"traceEvents": []}'.encode("utf-16"), Content.OTHER),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_by_the_first_bytes(tmp_path, content, kind):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    assert format_of(path) is kind
    if content[:2] != b"\x1f\x8b":
        path.write_bytes(gzip.compress(content))
        assert format_of(path) is (Content.OTHER if content.startswith(b"SQLite") else kind)


def test_a_compressed_file_that_ends_before_its_key_is_cut(tmp_path):
    path = tmp_path / "file.json"
    head = (
        b'{"note": "'
        + random.Random(1).randbytes(200_000).hex().encode()
        + b'", "traceEvents": []}'
    )
    path.write_bytes(gzip.compress(head)[:150_000])
    assert format_of(path) is Content.CUT
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + head)[:150_000])
    assert format_of(path) is KINETO


def test_a_database_of_something_else(tmp_path):
    path = tmp_path / "file.db"
    opened = sqlite3.connect(path)
    opened.execute("CREATE TABLE x (y)")
    opened.close()
    assert format_of(path) is Content.OTHER


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"a": 1}\n', Content.JSON),
        ('{"a": {"b": 1}', Content.JSON),
        ('{"a": {"b": 1', Content.CUT),
        ("{", Content.CUT),
        ('{"traceEvents": [', KINETO),
    ],
)
def test_a_document_that_ends_early_is_distinguished_from_another_one(tmp_path, text, kind):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert format_of(path) is kind
