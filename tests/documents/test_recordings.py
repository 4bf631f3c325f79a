"""Sheets of recordings that are written line by line: ``recordings.txt``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.cases import shown

from gemmetry.documents.operator_tables import (
    backward_calls,
    find_launchers,
    gemm_calls,
    joined,
    operator_calls,
    performance_tables,
    trace_tables,
)
from gemmetry.documents.tracelens import job_sheets, single_trace_sheet
from gemmetry.domain.tables import Table
from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.jobs import rank_trace
from gemmetry.traces.model import Trace
from gemmetry.traces.summary import summarize


def rows(tables: Iterable[Table]) -> Iterator[str]:
    for table in tables:
        for row in table.rows:
            yield shown(f"{table.name}:", dict(zip(table.names, row, strict=True)))


def launchers(traces: list[Trace]) -> Iterator[str]:
    """An operator named `whole` stands for all within it."""
    (trace,) = traces
    found = find_launchers(trace, whole=lambda name: name == "whole")
    for place, name in enumerate(found.name):
        times = {key: getattr(found, f"{key}_ns")[place] for key in ("direct", "subtree", "host")}
        category = found.categories[found.category[place]]
        yield shown(trace.rows.names[name],
                    {"category": category, "computes": found.computes[place], **times})  # fmt: skip
    for kernel, place in zip(trace.rows.gpu.name, found.of_row, strict=True):
        launcher = trace.rows.names[found.name[place]] if place >= 0 else "nothing"
        yield f"{trace.rows.names[kernel]} of {launcher}"


def calls(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    for find in (gemm_calls, operator_calls, backward_calls):
        found = find(trace)
        yield shown(find.__name__, {"busy_ns": found.busy_ns.tolist()})
        yield from rows(performance_tables(trace, joined([found])))


def sheets(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    yield from rows(trace_tables(trace, summarize(trace)))


def collectives(traces: list[Trace]) -> Iterator[str]:
    (trace,) = traces
    yield from rows([single_trace_sheet(rank_trace(trace))])


def job(ranks: list[Any]) -> Iterator[str]:
    for rank in ranks:
        yield from rows([single_trace_sheet(rank)])
    for found in analyse_jobs(ranks):
        yield from rows(job_sheets(found))


TOPICS = {one.__name__: one for one in (launchers, calls, sheets, collectives)}


def test_sheets(case, made_traces, made_ranks):
    if case.topic == "job":
        found = job(made_ranks(case.lines))
    else:
        found = TOPICS[case.topic](made_traces(case.lines))
    case.check(found)
