"""Small files of many formats, and what is read of them (``tests/data/read``).

``GEMMETRY_GOLDEN=1`` stores what is read now.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests import ncu_report_stand_in as ncu_report

from gemmetry.counters.collector import read_counters
from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import open_decompressed
from gemmetry.domain.operation import operation_name
from gemmetry.formats.benchmarks import StatedOperation, read_results
from gemmetry.formats.counters.launches import LaunchTable
from gemmetry.formats.counters.ncu_pages import read_ncu_csv
from gemmetry.formats.counters.ncu_report import MAGIC, read_ncu_rep
from gemmetry.formats.events import MISSING, TraceRows, plausible
from gemmetry.formats.kineto import read_kineto
from gemmetry.formats.nccl import inspector_records
from gemmetry.formats.rocm.rocprofv3 import (
    is_rocpd,
    read_counted,
    read_rocpd,
    read_rocprofv3_csv,
    read_rocprofv3_json,
)

DATA = Path(__file__).parents[1] / "data"
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
    return [_shown(one) for one in value] if isinstance(value, tuple | list) else value


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    return ((one.name, _shown(getattr(value, one.name))) for one in dataclasses.fields(value))


def launches(table: LaunchTable) -> dict[str, Any]:
    """Launches with all that identifies them but their samples, and the places of problems."""
    found = [
        {"info": _shown(dataclasses.replace(one.info, samples=())), "metrics": one.metrics(),
         "texts": one.texts()}
        for one in table
    ]  # fmt: skip
    places = [_PLACES.findall(problem) for problem in table.problems]
    return {"launches": found, "units": table.units, "problems": places}


def ncu(path: Path, case: dict[str, Any]) -> Any:
    """A page of Nsight Compute."""
    try:
        table = read_ncu_csv(path, case.get("metrics"))
    except RequestError:
        return "refused"
    return None if table is None else launches(table)


def ncu_rep(path: Path, case: dict[str, Any]) -> Any:
    """A report, whose launches a stand-in for NVIDIA's library reads."""
    path.write_bytes(MAGIC + b",2025.3.1.0 (build 36398880) (public-release)")
    ranges = []
    for actions in case["ranges"]:
        ranges.append([])
        for metrics, *rules in actions:
            metrics = {name: ncu_report.Metric(*metric) for name, metric in metrics.items()}
            ranges[-1].append(ncu_report.Action("k", metrics, rules))
    table = read_ncu_rep(path, ncu_report.library(*ranges), case.get("metrics"))
    assert (table.tool, table.source) == ("ncu", path)
    return {"version": table.version, **launches(table)}


def counters(path: Path, case: dict[str, Any]) -> Any:
    """A report of any tool, or its folder."""
    table = read_counters(path.parent if case.get("is_folder") else path)
    return {"tool": table.tool, **launches(table)}


def counted(path: Path, _: dict[str, Any]) -> Any:
    """Processes, with the sizes of their dispatches and how many problems there are."""
    return [
        {**_shown(one), "problems": len(one.problems),
         "sizes": [[launch.workgroups, launch.workgroup_size] for launch in one.dispatches]}
        for one in read_counted(path, "csv")
    ]  # fmt: skip


def inspector(path: Path, _: dict[str, Any]) -> Any:
    """Records of NCCL's inspector, and the numbers of lines that were left out."""
    problems: list[str] = []
    records = [_shown(one) for one in inspector_records(path, problems)]
    numbers = [re.findall(r"\d+", one.replace(str(path), "")) for one in problems]
    return {"records": records, "left_out": numbers}


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


ROCPD = dict(re.findall(r"^-- ([A-Z]+)$\n(.*?)(?=^-- |\Z)", (DATA / "read/rocpd.sql").read_text(),
                        re.DOTALL | re.MULTILINE))  # fmt: skip
"""Scripts modelled on rocprofiler-sdk's ``rocpd_tables.sql``, as no real database with a licence to
copy was found."""


def rocpd(path: Path, case: dict[str, Any]) -> Any:
    """A database of some of the scripts, for each process, and of commands that change it."""
    environment = json.dumps(case.get("environment", {}))
    with closing(sqlite3.connect(path)) as opened:
        for process in case.get("processes", ["_0000a1"]):
            for script in case["scripts"]:
                opened.executescript(ROCPD[script].format(u=process, environment=environment))
        opened.executescript(";".join(case.get("commands", ())))
    assert is_rocpd(path)
    return trace(read_rocpd(path))


def _stream(path: Path, read: Any, case: dict[str, Any]) -> Any:
    """The same whatever the size of a piece, where the case has several."""
    found = []
    for size in case.get("chunk_bytes", [None]):
        with open_decompressed(path) as file:
            options = {} if size is None else {"chunk_bytes": size}
            found.append(trace(read(file, **case.get("options", {}), **options)))
    assert found.count(found[0]) == len(found)
    return found[0]


READERS = {
    "ncu": ncu,
    "ncu_rep": ncu_rep,
    "counters": counters,
    "counted": counted,
    "inspector": inspector,
    "benchmark": benchmark,
    "rocpd": rocpd,
    "plausible": lambda path, case: _stream(path, lambda file: plausible(read_kineto(file)), case),
    "kineto": lambda path, case: _stream(path, read_kineto, case),
    "results_json": lambda path, case: _stream(path, read_rocprofv3_json, case),
    "rocprofv3_csv": lambda path, case: trace(read_rocprofv3_csv(path)),
}
STORED = {name: json.loads((DATA / "read" / f"{name}.json").read_text("utf-8")) for name in READERS}
CASES: dict[str, list[dict[str, Any]]] = {}
"""Reader and name without what is in brackets -> the cases."""
for _reader, _cases in STORED.items():
    for _case in _cases:
        CASES.setdefault(f"{_reader}: {_case['name'].partition('[')[0]}", []).append(_case)


def read(folder: Path, case: dict[str, Any], reader: str) -> Any:
    """What is read of the first of the case's files, or of its sample, as JSON."""
    names = [*case.get("samples", ()), *case.get("files", {"a": ""})]
    for name in case.get("samples", ()):
        shutil.copy(DATA / "traces" / name, folder)
    for name, text in case.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode(case.get("encoding", "utf-8"), "surrogateescape"))
    return json.loads(json.dumps(READERS[reader](folder / names[0], case)))


@pytest.mark.parametrize("name", CASES)
def test_what_is_read(name, tmp_path):
    reader, _, _ = name.partition(":")
    found = {}
    for number, case in enumerate(CASES[name]):
        folder = tmp_path / str(number)
        folder.mkdir()
        found[case["name"]] = read(folder, case, reader)
        if os.environ.get("GEMMETRY_GOLDEN"):
            case["expected"] = found[case["name"]]
    if os.environ.get("GEMMETRY_GOLDEN"):
        lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in STORED[reader])
        (DATA / "read" / f"{reader}.json").write_text(f"[\n{lines}\n]\n", "utf-8")
    assert found == {case["name"]: case["expected"] for case in CASES[name]}
