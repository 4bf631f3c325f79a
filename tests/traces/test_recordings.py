"""Recordings written line by line, and what is found in them: ``recordings.txt`` and ``jobs.txt``.

A case is its topic and name, the calls of :class:`Recording` (or ranks and their collectives) by
line, and after "=" the values found, without those that are 0 or empty. ``NAME = TEXT`` at the top
stands for {NAME}. ``GEMMETRY_GOLDEN=1 pytest
tests/traces/test_recordings.py`` stores them anew.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.traces import joins
from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.collectives.summary import Collective, Group, collectives_of
from gemmetry.traces.gemms import Gemms, link_gemms, workload
from gemmetry.traces.jobs import rank_trace
from gemmetry.traces.model import Trace, checked, split
from gemmetry.traces.operators.host import HostOperators
from gemmetry.traces.report import (
    collectives_document,
    gemms_table,
    host_operators_table,
    shapes_table,
)
from gemmetry.traces.summary import find_steps, outside_steps, summarize, summarize_steps
from gemmetry.traces.timeline import KINDS, trace_lanes

FOLDER = Path(__file__).parent


def shown(label: object, values: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        return f"{value:.6g}" if isinstance(value, float) else re.sub(r"\s", "_", str(value))

    return " ".join([str(label), *(f"{k}={text(v)}" for k, v in values.items() if v)])


def facts(one: Any, *without: str) -> dict[str, Any]:
    names = (field.name for field in dataclasses.fields(one))
    return {name: getattr(one, name) for name in names if name not in without}


def work(trace: Trace, rows: Iterable[int]) -> list[str]:
    return sorted(trace.rows.names[index] for index in trace.rows.gpu.name[list(rows)])


def problems(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    rows = checked(trace.rows)
    for one in rows.problems:
        numbers = re.findall(r"\d+", one.what)
        yield shown(one.kind.name, {"at": one.where, "part": one.part, "numbers": numbers})
    yield shown("kept", {"names": work(Trace(trace.file, rows), range(len(rows.gpu.name)))})
    yield shown("lost", {"launches": Trace(trace.file, rows).lost_launches.tolist()})
    for name, part in split(rows)[: len(rows.parts)]:
        counts = {"kernels": work(Trace(trace.file, part), range(len(part.gpu.name))),
                  "calls": len(part.calls.name), "problems": len(part.problems)}  # fmt: skip
        yield shown(name, {"rank": part.rank, "world_size": part.world_size, **counts})


def names(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    yield trace.label
    for row in trace.rows.gpu.start_ns.argsort():
        kind = trace.kernel_names.get(int(trace.rows.gpu.name[row]))
        flags = ("is_kernel", "is_gemm", "is_communication")
        values = {flag: getattr(trace, flag)[row] for flag in flags}
        yield shown(trace.rows.gpu.start_ns[row], {"kind": kind and kind.kind.name, **values})
    yield f"communication: {trace.communication.length} ns"


def steps(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    for step in find_steps(trace):
        yield shown(step.number, {**facts(step, "number", "rows"), "work": work(trace, step.rows)})
    yield shown("outside", facts(outside_steps(trace), "file"))


def summary(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    for one in (summarize(trace), *summarize_steps(trace), outside_steps(trace)):
        record = {key: value for key, value in one.record().items() if key != "file"}
        for gemm in record.pop("top_gemms", ()):
            yield shown("top", gemm)
        yield shown(type(one).__name__, record)


def lanes(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    for lane in trace_lanes(trace, 3):
        yield shown("lane", {name: getattr(lane, name) for name in ("device", "stream", "thread")})
        columns = (lane.start_ns, lane.duration_ns, lane.count, lane.row, lane.kind, lane.work)
        for *values, kind, index in zip(*columns, strict=True):
            what = {"kind": KINDS[kind], **lane.works[index]._asdict()}
            yield shown(" ".join(map(str, values)), what)


def launches(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    found, operators = trace.launches, trace.rows.operators.name

    def name(row: int) -> str:
        return "" if row == joins.NONE else trace.rows.names[operators[row]]

    for row, kernel in enumerate(trace.rows.gpu.name):
        values = {"operator": name(found.operator[row]), "is_graph": found.from_graph[row]}
        yield shown(trace.rows.names[kernel], {"call": str(found.call[row]), **values})
    for row, parent in enumerate(found.parent):
        yield f"{name(row)} in {name(parent) or 'nothing'}"
    yield shown("ambiguous", {"rows": joins.calls_of(trace.rows)[1].tolist()})


def shapes(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    links, gpu = link_gemms(trace), trace.rows.gpu
    for i in np.argsort(gpu.start_ns[links.row], kind="stable"):
        shape = links.shapes[links.shape[i]]._asdict() if links.shape[i] >= 0 else {}
        flags = {"is_inferred": links.inferred[i], "is_alone": links.is_alone[i]}
        yield shown(gpu.start_ns[links.row[i]], {**shape, **flags})


def gemms(traces: list[Trace]) -> Iterator[str]:
    for row in gemms_table(Gemms(traces).rows()).records():
        yield shown(row.pop("short_name"), row)


def products(traces: list[Trace]) -> Iterator[str]:
    load = workload(Gemms(traces).rows())
    for gemm, row in zip(load.gemms, shapes_table(load).records(), strict=True):
        yield shown(row.pop("operation"), {**row, "refused": gemm.reason})
    yield shown("all", {name: getattr(load, name) for name in ("sum_ns", "unknown_ns")})


def operators(traces: list[Trace]) -> Iterator[str]:
    found = HostOperators()
    for trace in traces:
        for row in host_operators_table(found.add(trace)).records():
            yield shown(trace.file, row)
    for row in host_operators_table(found.rows() if len(traces) > 1 else []).records():
        yield shown("all", row)
    for product in gemms_table(found.products()).records():
        yield shown("product", product)


def collectives(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    for one in collectives_of(trace):
        yield shown(one.op, {**facts(one, "op", "name"), "bytes": one.bytes})


def rank(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    found = rank_trace(trace)
    yield shown(found.rank, {**facts(found, "rank", "collectives"), "n": len(found.collectives)})


def of_jobs(traces: list[Any]) -> Iterator[str]:
    try:
        jobs = analyse_jobs(traces)
    except RequestError as error:
        yield f"error: {error.message}"
        return
    for found in jobs:
        document = collectives_document([found])
        yield shown(document["job"] + ":", {"ranks": [one.rank for one in found.job.ranks],
                    **{key: document[key] for key in ("world_size", "missing_ranks", "unmatched")},
                    "span": found.span_ns})  # fmt: skip
        for one, record in zip(found.matching.matched, document["matched"], strict=True):
            of_ranks = ",".join(f"{number}:{member.row}" for number, member in one.members)
            flags = ("is_complete", "is_group_inferred", "group_size", "latency_ns")
            values = {**record, **{name: getattr(one, name) for name in flags}}
            yield shown(f"matched {of_ranks}", values)
        for kind in found.kinds:
            yield shown("kind", {"op": kind.op, "elements": kind.elements, "n": len(kind.ones)})
        for key in ("stragglers", "clocks", "mismatches"):
            yield from (shown(key, record) for record in document[key])
        for one in found.stragglers(corrected=True) if found.offsets_ns else ():
            yield shown("corrected", one.record())
        yield from (f"note: {note}" for note in document["notes"])


TOPICS = {one.__name__: one for one in (
    problems, names, steps, summary, lanes, launches, shapes, gemms, products, operators,
    collectives, rank,
)}  # fmt: skip


def arguments(line: str) -> tuple[str, list[Any], dict[str, Any]]:
    """``what one "2 3" key=4`` -> its call; JSON where it is some, otherwise text."""

    def value(text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text

    what, *parts = re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+', line)
    pairs = [re.fullmatch(r'("[^"]*"|[A-Za-z_]+)=(.*)', part) for part in parts]
    given = {str(value(pair[1])): value(pair[2]) for pair in pairs if pair}
    return what, [value(part) for part, pair in zip(parts, pairs, strict=True) if not pair], given


def made_traces(lines: list[str], recording: Any) -> list[Trace]:
    made: list[tuple[str, Any]] = [("made_up.json", recording())]
    for line in lines:
        what, values, given = arguments(line)
        if what == "trace":
            made = made if made[0][1].events else []
            made.append((values[0], recording(**given)))
        elif what == "process":
            made[-1][1].process = values[0]
        else:
            getattr(made[-1][1], what)(*values, **given)
    return [one.trace(name) for name, one in made]


def made_ranks(lines: list[str], rank: Any, collective: Any) -> list[Any]:
    made: list[tuple[Any, dict[str, Any], list[Collective]]] = []
    for line in lines:
        what, values, given = arguments(line)
        if what == "rank":
            given |= {"file": Path(given["file"])} if "file" in given else {}
            made.append((values[0], given, []))
            continue
        if given.get("group"):
            name, ranks, size = given["group"]
            given["group"] = Group(name, tuple(ranks), size)
        made[-1][2].append(collective(**given))
    return [rank(number, ones, **given) for number, given, ones in made]


def cases(file: str) -> dict[str, tuple[list[str], list[str]]]:
    found = {}
    head, *blocks = re.split(r"^\[", (FOLDER / file).read_text("utf-8"), flags=re.M)
    for block in blocks:
        title, _, text = block.partition("]\n")
        for name, stands_for in re.findall(r"^(\w+) = (.*)", head, flags=re.M):
            text = text.replace(f"{{{name}}}", stands_for)
        lines = [line for line in text.splitlines() if line and line[0] != "#"]
        given = [line for line in lines if line[:2] != "= "]
        found[title] = given, [line[2:] for line in lines if line[:2] == "= "]
    return found


def check(file: str, title: str, expected: list[str], found: list[str]) -> None:
    path = FOLDER / file
    if os.environ.get("GEMMETRY_GOLDEN"):
        head, title_line, rest = path.read_text("utf-8").partition(f"[{title}]\n")
        block, mark, others = rest.partition("\n[")
        kept = [line for line in block.splitlines() if line and line[:2] != "= "]
        text = "\n".join([*kept, *(f"= {line}" for line in found)]) + "\n"
        path.write_text(f"{head}{title_line}{text}{mark}{others}", "utf-8")
    assert found == expected


@pytest.mark.parametrize("title", cases("recordings.txt"))
def test_recordings(title, recording):
    given, expected = cases("recordings.txt")[title]
    traces = made_traces(given, recording)
    found = list(TOPICS[title.partition(":")[0]](traces))
    check("recordings.txt", title, expected, found or ["nothing"])


@pytest.mark.parametrize("title", cases("jobs.txt"))
def test_jobs(title, rank, collective):
    given, expected = cases("jobs.txt")[title]
    check("jobs.txt", title, expected, list(of_jobs(made_ranks(given, rank, collective))))
