"""Traces with content that a trace should not have, created from bytes, and every table of them.

The same bytes give the same trace, so hypothesis and atheris can both look for bad ones.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.console import Console

from gemmetry.documents.tracelens_workbooks import (
    TraceLensSheets,
    report_json,
    trace_workbook,
    write_report,
)
from gemmetry.domain.errors import RequestError
from gemmetry.traces.api import Summaries, Traces
from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.gemms import spec_text, workload
from gemmetry.traces.jobs import rank_trace
from gemmetry.traces.page import trace_markdown, trace_page
from gemmetry.traces.reading import read_all
from gemmetry.traces.report import TraceReport, build_report, collectives_document, gemms_table
from gemmetry.traces.summary import outside_steps, summarize, summarize_steps
from gemmetry.traces.text import (
    print_gemms,
    print_jobs,
    print_steps,
    print_summaries,
    print_summary,
    print_workload,
)

VALUES = json.loads(Path(__file__).with_name("hostile_values.json").read_text("utf-8"))
SCRIPTS, FORMULAS, MARKS = (VALUES[name] for name in ("scripts", "formulas", "marks"))
OPERATORS = VALUES["operators"]
KERNELS = (*VALUES["kernels"], "k" * 20_000, "<" * 3000, "(anonymous namespace)::" * 300,
           "gemm" + "(" * 4000)  # fmt: skip
TEXTS = (*SCRIPTS, *FORMULAS, *MARKS, "\ud800", "x" * 3000)
_NAMES = (*KERNELS, *OPERATORS, *TEXTS)
_NUMBERS, _SHAPES, _TYPES, _RANKS, _CATEGORIES = (
    VALUES[name] for name in ("numbers", "shapes", "types", "ranks", "categories")
)

_LISTS = {"$numbers": _NUMBERS, "$shapes": _SHAPES, "$types": _TYPES, "$ranks": _RANKS,
          "$texts": TEXTS}  # fmt: skip
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    key: tuple(value for one in values for value in _LISTS.get(str(one), (one,)))
    for key, values in VALUES["arguments"].items()
}


class _Choices:
    """Choices from bytes; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._left = iter(data)

    def byte(self) -> int:
        return next(self._left, 0)

    def of(self, values: Sequence[Any]) -> Any:
        number = self.byte() if len(values) <= 256 else self.byte() << 8 | self.byte()
        return values[number % len(values)]


def hostile_trace(data: bytes, rank: int = 0) -> bytes:
    """A trace, or what is left of one. Traces of the same `data` differ only in their rank."""
    choices = _Choices(data)
    head: dict[str, Any] = {
        "distributedInfo": {"rank": rank, "world_size": choices.of((2, 2, 2, *_NUMBERS))},
        "deviceProperties": [{"id": choices.of((0, 0, *_NUMBERS)), "name": choices.of(
            ("NVIDIA H200", *TEXTS))}],
        "baseTimeNanoseconds": choices.of((0, *_NUMBERS)),
        "host_name": choices.of(("node", *TEXTS)),
        "trace_id": choices.of((None, None, *TEXTS)),
    }  # fmt: skip
    if choices.byte() % 8 == 1:
        head["distributedInfo"]["rank"] = choices.of(_NUMBERS)
    shape = choices.byte()
    events: list[Any] = []
    for number in range(choices.byte() % 24):
        events += _launch(choices, number) if choices.byte() % 2 else [_event(choices, number)]
    deep = choices.of((0, 0, 0, 0, 100, 480, 900, 1500))
    text = json.dumps({**head, "traceEvents": events})
    text = text.replace('["", "1"]', "[" * deep + "]" * deep) if deep else text
    content = text.encode()
    if shape % 4 == 1:
        content = content[: choices.byte() * len(content) // 256]
    elif shape % 4 == 2 and content:
        flipped = bytearray(content)
        for _ in range(choices.byte() % 8):
            place = (choices.byte() << 8 | choices.byte()) % len(flipped)
            flipped[place] = choices.byte()
        content = bytes(flipped)
    return content


def _launch(choices: _Choices, number: int) -> list[Any]:
    """An operator with the call in it and its kernel, most of it as it should be."""
    place = {"ph": "X", "pid": 1, "tid": 1, "ts": 100 * number, "dur": 90}
    numbers = {"correlation": number + 1, "External id": number + 1}
    recorded = {
        "Input Dims": choices.of((_SHAPES[0], _SHAPES[1], *_SHAPES)),
        "Input type": choices.of((_TYPES[0], _TYPES[1], *_TYPES)),
        "Input Strides": choices.of(([[32, 1], [64, 1]], *_SHAPES)),
        "Concrete Inputs": ["", "1"],
    }
    events = [
        {**place, "cat": "cpu_op", "name": choices.of(OPERATORS), "args": numbers | recorded},
        {**place, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": numbers,
         "ts": 100 * number + 10, "dur": 10},
        {**place, "cat": "kernel", "name": choices.of(KERNELS), "ts": 100 * number + 30, "dur": 50,
         "args": {**numbers, "device": 0, "stream": 7, "grid": [1, 1, 1], "block": [64, 1, 1]}},
    ]  # fmt: skip
    if "nccl" in events[2]["name"]:
        usual = {
            "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1024,
            "Out msg nelems": 1024, "Group size": 2, "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]",
        }  # fmt: skip
        for key, value in usual.items():
            events[2]["args"][key] = choices.of((value, value, value, *_ARGUMENTS[key]))
    for _ in range(choices.byte() % 3):
        event, key = choices.of(events), choices.of(("ts", "dur", "args", "tid", "name"))
        event[key] = choices.of(_NUMBERS if key != "name" else _NAMES)
    return events


def _event(choices: _Choices, number: int) -> Any:
    if choices.byte() % 32 == 31:
        return choices.of((5, "x", None, [], [[]], {}, [1, {"ph": "X"}]))
    category = choices.of(_CATEGORIES)
    names = OPERATORS if category == "cpu_op" else KERNELS if category == "kernel" else _NAMES
    plain = choices.byte()
    event: dict[str, Any] = {
        "ph": "X",
        "cat": category,
        "name": choices.of(names if plain % 3 else _NAMES),
        "pid": 1,
        "tid": choices.of((1, 1, 1, 2, "x", None, {"a": 1})),
        "ts": number * 10 if plain % 4 else choices.of(_NUMBERS),
        "dur": 9 - number % 3 if plain % 4 else choices.of(_NUMBERS),
    }
    if plain % 16 == 5:
        event["ph"] = choices.of(("B", "i", 5, None))
    keys = list(_ARGUMENTS)
    event["args"] = {
        key: choices.of(_ARGUMENTS[key]) for key in (choices.of(keys) for _ in range(plain % 9))
    }
    if plain % 2:
        event["args"] |= {"correlation": number // 3 + 1, "External id": number // 3 + 1}
    return event


def check_everything(paths: Sequence[Path], folder: Path) -> tuple[int, int]:
    """Creates every table and report of the traces `paths` as the commands do. Nothing but a
    RequestError may be raised, and the files may contain nothing active. Returns the numbers of
    files that were read and that were refused."""
    errors: dict[str, RequestError] = {}
    traces = list(read_all(paths, errors, use_cache=False))
    text = io.StringIO()
    console = Console(file=text, width=80, highlight=False, color_system=None)
    summaries = [summarize(trace) for trace in traces]
    steps = [step for trace in traces for step in summarize_steps(trace)]
    recorded = {file: error.message for file, error in errors.items()}
    print_summaries(summaries, console)
    outside = [outside_steps(trace) for trace in traces]
    print_steps(summaries, steps, outside, console)
    for summary in summaries:
        print_summary(summary, console)
        assert 0 <= summary.busy_ns <= summary.window_ns
        assert summary.idle_ns + summary.busy_ns == summary.window_ns
        assert 0 <= summary.exposed_comm_ns <= summary.comm_union_ns
        assert 0 <= summary.gemm_kernel_ns < 2**63
    document = Traces([]).result(Summaries(summaries, steps, outside).rows(steps=True)).document()
    json.dumps(document, default=float, allow_nan=False).encode()
    try:
        report = build_report(iter(traces), errors, sheets=TraceLensSheets(), with_lanes=True)
        jobs = analyse_jobs(map(rank_trace, traces))
    except RequestError:
        # A rank twice in one job.
        return len(traces), len(errors)
    print_jobs(jobs, console)
    json.dumps(collectives_document(jobs, recorded), allow_nan=False).encode()
    print_gemms(report.gemms, console)
    load = workload(report.gemms)
    print_workload(load, console)
    json.dumps(gemms_table(report.gemms).records(), allow_nan=False)
    try:
        spec_text(load, [trace.file.name for trace in traces]).encode()
    except RequestError:
        pass
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", text.getvalue())
    _check_files(report, folder)
    return len(traces), len(errors)


def _check_files(report: TraceReport, folder: Path) -> None:
    check_workbook(trace_workbook(report))
    check_page(trace_page(report))
    trace_markdown(report).encode()
    json.loads(report_json(report))
    write_report(report, folder / "sheets")
    for path in (folder / "sheets").iterdir():
        check_csv(path.read_text(encoding="utf-8"))
        path.unlink()


def check_workbook(content: bytes) -> None:
    """No formula, no link, and XML that a parser takes."""
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        for name in book.namelist():
            tree = ElementTree.fromstring(book.read(name))
            tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
            assert not tags & {"f", "hyperlink", "hyperlinks", "externalReference", "ddeLink"}, name


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.scripts += tag == "script"
        assert tag not in ("iframe", "object", "embed", "base", "form", "img"), tag
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            assert not (name in ("href", "src") and not (value or "").startswith(("#", "data:")))


def check_page(page: str) -> None:
    """No element and no attribute that comes from a name."""
    page.encode()
    parser = _Page()
    parser.feed(page)
    assert parser.scripts == 3


def check_csv(text: str) -> None:
    """No cell that a spreadsheet evaluates."""
    for row in csv.reader(io.StringIO(text, newline="")):
        for cell in row:
            plain = cell.strip("\x00\t\r\n \ufeff")
            if plain[:1] in ("=", "+", "-", "@"):
                float(cell)
