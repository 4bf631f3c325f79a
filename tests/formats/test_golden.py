"""Small files of many formats, and what is read of them (``tests/data/read``).

After a wanted change, ``python tests/formats/test_golden.py`` stores what is read now.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import open_decompressed
from gemmetry.domain.operation import operation_name
from gemmetry.formats.benchmarks import StatedOperation, read_results
from gemmetry.formats.counters.ncu_pages import read_ncu_csv
from gemmetry.formats.events import MISSING, TraceRows
from gemmetry.formats.kineto import read_kineto
from gemmetry.formats.rocm.rocprofv3 import read_rocprofv3_csv, read_rocprofv3_json

DATA = Path(__file__).parents[1] / "data" / "read"
_PLACES = re.compile(r"line \d+|launch \d+|'[^']*'")
_TEXTS = {"name": "names", "thread": "threads", "arguments": "arguments",
          "collective": "collectives"}  # fmt: skip
"""Column -> what it numbers, in the order of reading."""


def trace(rows: TraceRows | None) -> dict[str, Any] | None:
    """Everything that was read but what is missing, with texts in place of their numbers."""
    if rows is None:
        return None
    found: dict[str, Any] = {}
    for field in dataclasses.fields(rows):
        value = getattr(rows, field.name)
        if field.name in ("gpu", "calls", "operators", "annotations"):
            for column in dataclasses.fields(value) if len(value.start_ns) else ():
                cells = getattr(value, column.name).tolist()
                if any(cell not in (MISSING, [0, 0, 0]) for cell in cells):
                    of = getattr(rows, _TEXTS.get(column.name, ""), None)
                    shown = cells if of is None else [_shown(of[n]) if n >= 0 else n for n in cells]
                    found[f"{field.name}.{column.name}"] = shown
        elif field.name == "problems":
            found["problems"] = [[one.where, one.kind, one.count] for one in value]
        elif field.name not in _TEXTS.values() and value not in (None, (), {}, 0, False):
            found[field.name] = _shown(value)
    return found


def _shown(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {name: one for name, one in _fields(value) if one not in (None, "", (), [])}
    return [_shown(one) for one in value] if isinstance(value, tuple) else value


def _fields(value: Any) -> list[tuple[str, Any]]:
    return [(one.name, _shown(getattr(value, one.name))) for one in dataclasses.fields(value)]


def ncu(path: Path, case: dict[str, Any]) -> Any:
    """Launches with all that identifies them, and the places of problems."""
    try:
        table = read_ncu_csv(path, case.get("metrics"))
    except RequestError:
        return "refused"
    launches = [
        {"info": _shown(one.info), "metrics": one.metrics(), "texts": one.texts()} for one in table
    ]
    places = [_PLACES.findall(problem) for problem in table.problems]
    return {"launches": launches, "units": table.units, "problems": places}


def benchmark(path: Path, case: dict[str, Any]) -> Any:
    """The format, results, and places of rows that were left out."""
    form, found = read_results(path, StatedOperation(case["stated"]))
    results = [
        _shown(dataclasses.replace(one, operation=operation_name(one.operation), reason=""))
        for one in found.results
    ]
    reasons = [bool(one.reason) for one in found.results]
    places = [re.match(r"[^:]+(?::\d+|: [\w,]+(?=:))?", one)[0] for one in found.problems]
    return {"format": form.name, "results": results, "has_reason": reasons, "left_out": places}


def _stream(path: Path, read: Any, case: dict[str, Any]) -> Any:
    with open_decompressed(path) as file:
        return trace(read(file, **case.get("options", {})))


READERS = {
    "ncu": ncu,
    "benchmark": benchmark,
    "kineto": lambda path, case: _stream(path, read_kineto, case),
    "results_json": lambda path, case: _stream(path, read_rocprofv3_json, case),
    "rocprofv3_csv": lambda path, case: trace(read_rocprofv3_csv(path)),
}


def read(folder: Path, case: dict[str, Any], reader: str) -> Any:
    """What is read of the first of the case's files, as JSON."""
    for name, text in case["files"].items():
        (folder / name).write_bytes(text.encode(case.get("encoding", "utf-8"), "surrogateescape"))
    found = READERS[reader](folder / next(iter(case["files"])), case)
    return json.loads(json.dumps(found))


CASES = {
    f"{reader}: {case['name']}": (reader, case)
    for reader in READERS
    for case in json.loads((DATA / f"{reader}.json").read_text("utf-8"))
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_read(name, tmp_path):
    reader, case = CASES[name]
    assert read(tmp_path, case, reader) == case["expected"]


if __name__ == "__main__":
    for reader in READERS:
        cases = json.loads((DATA / f"{reader}.json").read_text("utf-8"))
        for case in cases:
            with tempfile.TemporaryDirectory() as folder:
                case["expected"] = read(Path(folder), case, reader)
        text = "[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n"
        (DATA / f"{reader}.json").write_text(text, "utf-8")
