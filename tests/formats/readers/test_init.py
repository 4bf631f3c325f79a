"""A format of traces is one file: what is in ``formats/readers`` is found, read and listed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.formats import readers
from gemmetry.formats.readers import supported, trace_formats
from gemmetry.traces.reading import find_traces, read_trace

LINES = """
from gemmetry.formats.kineto import read_kineto
from gemmetry.formats.readers import TraceFormat


def _read(path):
    import io, json

    starts = path.read_text().splitlines()[1:]
    events = [{"ph": "X", "cat": "kernel", "name": "k", "ts": int(start), "dur": 1}
              for start in starts]
    return read_kineto(io.BytesIO(json.dumps({"traceEvents": events}).encode()))


FORMATS = [TraceFormat(
    name="lines of times",
    suffix=".lines",
    summary="lines of times (.lines)",
    begins=lambda text: text.startswith(b"LINES"),
    read=_read,
)]
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


def test_without_the_file_there_is_no_such_format(tmp_path: Path) -> None:
    file = tmp_path / "a.lines"
    file.write_text("LINES\n3\n5\n")
    with pytest.raises(RequestError, match="begins with"):
        read_trace(file)
    assert "lines" not in supported()


def test_each_module_declares_a_format_of_its_own() -> None:
    forms = trace_formats()
    assert len({form.name for form in forms}) == len(forms)
    keys = [form.json_key for form in forms if form.json_key]
    assert len(set(keys)) == len(keys)
    assert [form.name for form in forms if form.reads_unrecognised] == ["Kineto trace"]
    assert all(form.summary for form in forms if form.read)
    assert all(form.problem for form in forms if not form.read)
