"""Recordings written line by line, and what is found in them: ``recordings.txt``, ``jobs.txt``.

A line is a call of :class:`Recording`; or a rank, and each of its collectives.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.cases import shown

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import RequestError
from gemmetry.domain.specs.loader import load_spec
from gemmetry.domain.specs.planning import make_plan
from gemmetry.engine.catalogue import InstalledCatalogue
from gemmetry.traces import joins
from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.collectives.summary import collectives_of
from gemmetry.traces.gemms import Gemms, link_gemms, spec_text, workload
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
        flags = ("is_kernel", "is_gemm", "is_gemm_of_convolution", "is_communication")
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
        assert gemm.operation is None or parse_operation(gemm.operation)
        yield shown(row.pop("operation"), {**row, "refused": gemm.reason})
    yield shown("all", {name: getattr(load, name) for name in ("sum_ns", "unknown_ns")})


def specs(traces: list[Trace]) -> Iterator[str]:
    """The specs of all GEMMs and of the first, and what a run of them plans."""
    load, files = workload(Gemms(traces).rows()), [str(one.file) for one in traces]
    try:
        text = spec_text(load, files)
    except RequestError as error:
        yield f"error: {error.message}"
        return
    yield text
    yield "top: " + spec_text(load, files, top=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shapes.yaml")
        path.write_text(text)
        spec = load_spec(path, overrides={"providers": ["numpy"], "device": ["cpu"]})
    plan = make_plan(spec, InstalledCatalogue()).plan
    yield " ".join([f"{spec.name}:", *sorted(map(str, plan.operations))])


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
    for found in map(rank_trace, traces):
        facts_of_rank = facts(found, "rank", "collectives")
        yield shown(found.rank, {**facts_of_rank, "n": len(found.collectives)})


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


def matched(traces: list[Trace]) -> Iterator[str]:
    return of_jobs(list(map(rank_trace, traces)))


TOPICS = {one.__name__: one for one in (
    problems, names, steps, summary, lanes, launches, shapes, gemms, products, specs, operators,
    collectives, rank, matched,
)}  # fmt: skip


def test_recordings(case, made_traces):
    case.check(TOPICS[case.topic](made_traces(case.lines)))


def test_jobs(jobs_case, made_ranks):
    jobs_case.check(of_jobs(made_ranks(jobs_case.lines)))
