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

from gemmetry.analysis.traces.collectives import (
    collectives_document,
    kernels_table,
    kinds_table,
    matched_table,
    ranks_table,
)
from gemmetry.formats.kineto import read_kineto
from gemmetry.reports.traces.collective_text import ABOUT_BOUNDS, bounded, print_jobs, size_text
from gemmetry.traces.collectives.jobs import analyse_jobs
from gemmetry.traces.collectives.summary import Collective, Group
from gemmetry.traces.jobs import RankTrace, rank_trace
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import read_trace

SAMPLES = Path(__file__).parents[2] / "data" / "collectives"
PAGE = Path(__file__).parents[3] / "docs" / "collectives.md"


def kernels(shift, durations=(2000, 2000)):
    group = Group("0", (0, 1), 2)
    return tuple(
        Collective(
            row=i, op="all_reduce", dtype="Half", elements=1000, in_elements=1000,
            out_elements=1000, group=group, algorithm="tree", protocol=None, source="kernel",
            name="nccl", stream=1, device=0, start_ns=10**18 + i * 10**6 + shift,
            duration_ns=duration,
        )
        for i, duration in enumerate(durations)
    )  # fmt: skip


def trace(rank, ones, folder="job"):
    return RankTrace(
        file=Path(f"{folder}/rank{rank}.json"), rank=rank, rank_source="trace", world_size=2,
        job=None, host=None, base_ns=10**18, span=(0, 0), collectives=ones, partial=False,
        problems=(),
    )  # fmt: skip


def found(shift=500):
    return analyse_jobs([trace(0, kernels(0)), trace(1, kernels(shift))])


def shown(jobs, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    with console.file:
        print_jobs(jobs, console)
    return console.export_text()


def test_one_jobs_document():
    document = collectives_document(found())
    assert list(document)[:5] == [
        "schema_version",
        "per_rank",
        "matched",
        "stragglers",
        "unmatched",
    ]
    first = document["per_rank"][1]["collectives"][0]
    assert list(first)[:7] == [
        "op", "elements", "dtype", "bytes", "group", "start_ns", "duration_ns",
    ]  # fmt: skip
    assert list(first.values())[:7] == ["all_reduce", 1000, "Half", 2000, "0", 10**18 + 500, 2000]
    matched = document["matched"][0]
    assert list(matched)[:8] == [
        "op", "elements", "dtype", "start_skew_us", "end_skew_us", "last_rank", "algbw_gbps",
        "busbw_gbps",
    ]  # fmt: skip
    assert list(matched.values())[:8] == ["all_reduce", 1000, "Half", 0.5, 0.5, 1, 1.0, 1.0]
    assert matched["waits_us"] == {"0": 0.5, "1": 0.0}
    assert document["stragglers"] == [
        {"rank": 0, "last_count": 0, "last_share": 0.0, "waited_us": 1.0},
        {"rank": 1, "last_count": 2, "last_share": 1.0, "waited_us": 0.0},
    ]
    assert document["unmatched"] == {"0": 0, "1": 0}
    assert document["groups"] == [{"name": "0", "ranks": [0, 1], "size": 2}]
    json.dumps(document, allow_nan=False)


def test_several_jobs_and_files_that_could_not_be_read():
    jobs = analyse_jobs(trace(rank, kernels(0), folder) for folder in ("a", "b") for rank in (0, 1))
    document = collectives_document(jobs, {"x.json": "x.json is empty"})
    assert list(document) == ["schema_version", "jobs", "errors"]
    assert [job["job"] for job in document["jobs"]] == ["a", "b"]
    assert document["errors"] == [{"file": "x.json", "error": "x.json is empty"}]


def test_corrected_values_stand_next_to_recorded_ones():
    # The second rank's clock is 3 ms ahead: its kernels cannot have run at the same time as the
    # first's.
    document = collectives_document(found(shift=3_000_000))
    matched = document["matched"][0]
    assert (matched["start_skew_us"], matched["corrected_start_skew_us"]) == (3000.0, 0.0)
    assert (matched["last_rank"], matched["corrected_last_rank"]) == (1, 0)
    assert document["clocks"][1]["applied_us"] == -3000.0
    assert document["stragglers"][0]["waited_us"] == 6000.0
    names = ("corrected_last_count", "corrected_waited_us")
    assert [[clock[name] for name in names] for clock in document["clocks"]] == [[2, 0.0], [0, 0.0]]
    as_recorded = collectives_document(found())
    assert as_recorded["matched"][0]["corrected_start_skew_us"] is None
    assert as_recorded["matched"][0]["corrected_last_rank"] is None
    assert [[clock[name] for name in names] for clock in as_recorded["clocks"]] == [[None] * 2] * 2


def test_the_page_names_every_key_of_the_document():
    reported = {
        match[1]: tuple(re.findall(r"`(\w+)`", match[2]))
        for match in re.finditer(r"^\| `?([\w ]+?)`? \| (`.*`) \|$", PAGE.read_text("utf-8"), re.M)
    }
    alike = kernels(0, (2000, 2000, 2000))
    other = (alike[0], replace(alike[1], dtype="Float"), alike[2])
    for jobs in (
        found(),
        found(shift=3_000_000),
        analyse_jobs([trace(0, alike), trace(1, other)]),
    ):
        document = collectives_document(jobs, {"x.json": "empty"})
        assert tuple(document) == reported["the document"]
        lists = {name: part for name, part in document.items() if name in reported}
        lists["collectives"] = [one for rank in document["per_rank"] for one in rank["collectives"]]
        assert set(lists) == set(reported) - {"the document"}
        for name, entries in lists.items():
            assert all(tuple(entry) == reported[name] for entry in entries), name
            assert entries or name == "mismatches"
    assert document["mismatches"]


def test_rows_for_files():
    jobs = found()
    assert matched_table(jobs).values("start_skew_us") == [0.5, 0.5]
    assert matched_table(jobs).values("corrected_start_skew_us") == [None, None]
    assert kernels_table(jobs).select(("rank", "collective", "wait_us")).rows == [
        [0, 0, 0.5], [0, 1, 0.5], [1, 0, 0.0], [1, 1, 0.0],
    ]  # fmt: skip
    (kind,) = kinds_table(jobs).records()
    assert (kind["count"], kind["latency_us_median"], kind["busbw_gbps_median"]) == (2, 2.0, 1.0)
    columns = ("rank", "unmatched", "clock_applied_us")
    assert [tuple(row[name] for name in columns) for row in ranks_table(jobs).records()] == [
        (0, 0, 0.0), (1, 0, 0.0),
    ]  # fmt: skip


def test_unmatched_kernels_have_no_number():
    jobs = analyse_jobs([trace(0, kernels(0)), trace(1, kernels(0)[:1])])
    assert [row["collective"] for row in kernels_table(jobs).records()] == [0, None, 0]


def test_the_console_shows_kinds_ranks_and_notes():
    text = shown(found(shift=3_000_000))
    assert "2 of 2 ranks, 4 communication kernels: 2 collectives matched, 0 kernels not" in text
    assert "all_reduce" in text
    assert "2.0 kB" in text
    assert "clocks differ from rank 0's: rank 1 by -3000.0 µs" in " ".join(text.split())
    assert "corrected for the offsets of clocks" in text


@pytest.mark.parametrize(
    "dtype", ["[/]", "[bold]x[/bold]", "\x1b[31mx", "x" * 500, "a\nb", "\ud800"]
)
def test_types_that_no_one_knows_are_neither_markup_nor_long(dtype):
    ones = kernels(0)
    for ranks in (1, 2):
        traces = [trace(r, [replace(one, dtype=dtype) for one in ones]) for r in range(ranks)]
        text = shown(analyse_jobs(traces))
        assert "\x1b" not in text and "\ud800" not in text
        assert max(map(len, text.splitlines())) <= 80
    if dtype.startswith("["):
        assert dtype in text


def test_a_rank_alone_shows_durations_and_no_bandwidth():
    text = shown(analyse_jobs([trace(0, kernels(0))]))
    assert "busbw" not in text
    assert re.search(r"total +min +median\n.* ms +µs +µs", text)
    assert "no file of rank 1 (of 2)" in text


def test_values_of_incomplete_groups_are_bounds_as_on_the_page():
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


def test_durations_are_written_alike_everywhere():
    text = shown(found(shift=3_000_000))
    assert "µs" in text
    assert not re.search(r"\bus\b", text)


def test_nothing_to_show():
    text = shown(analyse_jobs([trace(0, ()), trace(1, ())]))
    assert text.splitlines() == ["job", "2 of 2 ranks, no communication kernel"]


def test_names_with_markup_are_text():
    jobs = analyse_jobs([trace(0, kernels(0), "[bold]x[/bold]")])
    assert "[bold]x[/bold]" in shown(jobs)


@pytest.mark.parametrize("folder", ["h200x4", "hta_2of128"])
def test_real_jobs_fit_80_columns(folder):
    files = sorted((SAMPLES / folder).glob("*.json.gz"))
    jobs = analyse_jobs(
        rank_trace(Trace(Path(file.name), read_trace(file, use_cache=False))) for file in files
    )
    for line in shown(jobs).splitlines():
        assert len(line) <= 80
        assert "…" not in line


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
def test_whatever_the_metadata_there_is_a_document(reported):
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


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (402726912, "402.7 MB"),
     (2 * 10**9, "2.0 GB")],
)  # fmt: skip
def test_sizes(size, text):
    assert size_text(size) == text
