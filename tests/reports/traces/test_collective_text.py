from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from gemmetry.formats.kineto import read_kineto
from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.collectives.summary import Group
from gemmetry.traces.jobs import rank_trace
from gemmetry.traces.model import Trace
from gemmetry.traces.report import collectives_document
from gemmetry.traces.text import ABOUT_BOUNDS, bounded, print_jobs


def shown(jobs, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    with console.file:
        print_jobs(jobs, console)
    return console.export_text()


@pytest.mark.parametrize(
    "dtype", ["[/]", "[bold]x[/bold]", "\x1b[31mx", "x" * 500, "a\nb", "\ud800"]
)
def test_unknown_types_are_escaped_and_shortened(dtype, kernels, trace):
    ones = kernels(0)
    for ranks in (1, 2):
        traces = [trace(r, [replace(one, dtype=dtype) for one in ones]) for r in range(ranks)]
        text = shown(analyse_jobs(traces))
        assert "\x1b" not in text and "\ud800" not in text
        assert max(map(len, text.splitlines())) <= 80
    if dtype.startswith("["):
        assert dtype in text


def test_values_of_incomplete_groups_are_bounds_as_on_the_page(kernels, trace):
    whole = shown(analyse_jobs([trace(0, kernels(0)), trace(1, kernels(1))]))
    assert "≤" not in whole and "≥" not in whole
    of_four = [replace(one, group=Group("g", (0, 1, 2, 3), 4)) for one in kernels(0)]
    text = shown(analyse_jobs([trace(0, of_four), trace(1, of_four)]))
    assert re.search(r"x2 +≤ 2\.0 +0\.0 +≥ 1\.0 +≥ 1\.5\n", text)
    assert ABOUT_BOUNDS in " ".join(text.split())
    assert bounded("2.0", "latency_us_median", complete=False) == "≤ 2.0"
    assert bounded("2.0", "latency_us_median", complete=True) == "2.0"
    assert bounded("", "busbw_gbps_median", complete=False) == ""
    assert bounded("7", "count", complete=False) == "7"


def test_nothing_to_show(trace):
    text = shown(analyse_jobs([trace(0, ()), trace(1, ())]))
    assert text.splitlines() == ["job", "2 of 2 ranks, no communication kernel"]


def test_names_with_markup_are_text(kernels, trace):
    jobs = analyse_jobs([trace(0, kernels(0), "[bold]x[/bold]")])
    assert "[bold]x[/bold]" in shown(jobs)


ODD = st.one_of(
    st.none(), st.integers(-5, 5), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from(["[0, 1]", "[1, 0]", "[]", "[0, ..., 1]", "Float", "send", "_allgather_base"]),
)  # fmt: skip
KEYS = ("Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size",
        "Process Group Name", "Process Group Ranks", "In split size", "Out split size", "Dst Rank",
        "Src Rank", "Seq")  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 50), st.dictionaries(st.sampled_from(KEYS), ODD)
        ),
        max_size=10,
    )
)
def test_any_metadata_give_a_document(reported):
    by_rank = {}
    for rank, ts, args in reported:
        by_rank.setdefault(rank, []).append({
            "ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic()", "ts": ts, "dur": 3,
            "pid": 0, "tid": 1, "args": {"device": rank, "stream": 1, **args},
        })  # fmt: skip
    traces = []
    for rank, events in by_rank.items():
        head = {"distributedInfo": {"rank": rank, "world_size": 3}, "traceEvents": events}
        rows = read_kineto(io.BytesIO(json.dumps(head).encode()))
        traces.append(rank_trace(Trace(Path(f"job/{rank}.json"), rows)))
    jobs = analyse_jobs(traces)
    json.dumps(collectives_document(jobs), allow_nan=False)
    shown(jobs)
    for found in jobs:
        counts = {one.rank: len(one.collectives) for one in found.job.ranks}
        matched = [rank for one in found.matching.matched for rank, _ in one.members]
        for rank, left in found.matching.unmatched.items():
            assert 0 <= left <= counts[rank] - matched.count(rank)
