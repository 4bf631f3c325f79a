"""A format of traces is one file: what is in ``formats/readers`` is found, recognised, read and
listed."""

from __future__ import annotations

import gzip
import importlib
import random
import sys
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.formats import readers
from gemmetry.formats.readers import (
    Content,
    foreign,
    format_of,
    kineto,
    rocprofv3,
    supported,
    trace_formats,
)
from gemmetry.traces.reading import find_traces, read_trace

LINES = """
import io, json

from gemmetry.formats.kineto import read_kineto
from gemmetry.formats.readers import TraceFormat

def _read(path):
    events = [{"ph": "X", "cat": "kernel", "name": "k", "ts": int(start), "dur": 1}
              for start in path.read_text().splitlines()[1:]]
    return read_kineto(io.BytesIO(json.dumps({"traceEvents": events}).encode()))

FORMATS = [TraceFormat(name="lines of times", suffix=".lines", summary="lines of times (.lines)",
                       begins=lambda text: text.startswith(b"LINES"), read=_read)]
"""


@pytest.fixture
def _with_lines(tmp_path, monkeypatch):
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "lines.py").write_text(LINES)
    monkeypatch.setattr(readers, "__path__", [*readers.__path__, str(folder)])
    importlib.invalidate_caches()
    trace_formats.cache_clear()
    yield
    trace_formats.cache_clear()
    sys.modules.pop(f"{readers.__name__}.lines", None)


@pytest.mark.usefixtures("_with_lines")
def test_a_file_in_the_folder_is_a_format(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "a.lines").write_text("LINES\n3\n5\n")
    (traces / "b.txt").write_text("LINES\n3\n")
    assert find_traces([traces]) == [traces / "a.lines"]
    rows = read_trace(traces / "a.lines", use_cache=False)
    assert rows.gpu.start_ns.tolist() == [3000, 5000]
    assert "lines of times (.lines)" in supported()
    (traces / "c.json").write_text("nothing")
    with pytest.raises(RequestError) as caught:
        read_trace(traces / "c.json")
    assert "lines of times (.lines)" in caught.value.hint


def test_each_module_declares_a_format_of_its_own() -> None:
    forms = trace_formats()
    assert len({form.name for form in forms}) == len(forms)
    keys = [form.json_key for form in forms if form.json_key]
    assert len(set(keys)) == len(keys)
    assert [form.name for form in forms if form.reads_unrecognised] == ["Kineto trace"]
    assert all(form.summary for form in forms if form.read)
    assert all(form.problem for form in forms if not form.read)


CHAKRA, _, WORKBOOK = foreign.FORMATS
(KINETO,) = kineto.FORMATS
_, CSV, JSON = rocprofv3.FORMATS

SAMPLES = Path(__file__).parents[1] / "data" / "traces"


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.*")), ids=lambda path: path.name)
def test_real_files(path):
    parts = {"_et_": CHAKRA, "results": JSON, ".csv": CSV, ".md": Content.OTHER}
    expected = [form for part, form in parts.items() if part in path.name]
    assert format_of(path) is (expected or [KINETO])[0]


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
        # Documents that end early.
        (b'{"a": 1}\n', Content.JSON),
        (b'{"a": {"b": 1}', Content.JSON),
        (b'{"a": {"b": 1', Content.CUT),
        (b"{", Content.CUT),
        (b'{"traceEvents": [', KINETO),
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
    note = random.Random(1).randbytes(200_000).hex()
    head = f'{{"note": "{note}", "traceEvents": []}}'.encode()
    path.write_bytes(gzip.compress(head)[:150_000])
    assert format_of(path) is Content.CUT
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + head)[:150_000])
    assert format_of(path) is KINETO
