"""What a terminal of 80 columns shows of traces: golden outputs, and that no name is markup."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from gemmetry.domain.errors import RequestError
from gemmetry.formats.kineto import read_kineto
from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.collectives.summary import Group
from gemmetry.traces.gemms import Gemms, workload
from gemmetry.traces.jobs import rank_trace
from gemmetry.traces.model import Trace
from gemmetry.traces.operators.gemms import GemmShape
from gemmetry.traces.reading import read_trace
from gemmetry.traces.report import collectives_document, kernels_table
from gemmetry.traces.summary import Outside, outside_steps, summarize, summarize_steps
from gemmetry.traces.text import (
    bounded,
    notebook_table,
    outside_text,
    print_gemms,
    print_jobs,
    print_steps,
    print_summaries,
    print_summary,
    print_workload,
    shape_text,
)

DATA = Path(__file__).parents[1] / "data"
FSDP = ("h200_fsdp_rank0of4_part.pt.trace.json.gz", "h200_fsdp_rank1of4_part.pt.trace.json.gz")
OTHERS = ("v100_resnet50_2021_part.json.gz", "mi350_aorta_misc.json.gz",
          "h200_matmul.pt.trace.json.gz", "mi300x_torch_compile_triton.json.gz")  # fmt: skip


def _trace(name):
    """Texts do not depend on where its file is."""
    return Trace(Path("traces", name), read_trace(DATA / "traces" / name, use_cache=False))


def _job(folder):
    files = sorted((DATA / "collectives" / folder).glob("*.json.gz"))
    return analyse_jobs(
        rank_trace(Trace(Path(folder, file.name), read_trace(file, use_cache=False)))
        for file in files
    )


def _shown(printer, *arguments, **options):
    out = io.StringIO()
    printer(*arguments, Console(file=out, width=80, highlight=False), **options)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines), default=0) <= 80
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _steps(*traces):
    steps = [step for trace in traces for step in summarize_steps(trace)]
    outside = [outside_steps(trace) for trace in traces]
    return _shown(print_steps, [summarize(trace) for trace in traces], steps, outside)


def pipelined(folder):
    """Two steps: between the two kernels of the first one only the other's runs for 10 µs."""
    events = [
        {"cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": 100}
        for number, at in ((1, 0), (2, 100))
    ]
    work = ((1, 10, 200, 50, 7), (2, 20, 260, 100, 7), (3, 110, 240, 200, 20))
    for number, launched, start, length, stream in work:
        args = {"correlation": number, "device": 0, "stream": stream}
        events += [
            {"cat": "cuda_runtime", "name": "launch", "ts": launched, "dur": 1, "args": args},
            {"cat": "kernel", "name": "k", "ts": start, "dur": length, "args": args},
        ]
    path = folder / "pipelined.json"
    path.write_text(
        json.dumps({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **one} for one in events]})
    )
    return Trace(Path("pipelined.json"), read_trace(path, use_cache=False))


def test_traces_are_shown_as_reviewed(golden, tmp_path):
    fsdp, others = ([*map(_trace, names)] for names in (FSDP, OTHERS))
    rows = read_kineto(io.BytesIO(b'{"traceEvents": []}'))
    nothing = Trace(Path("a.json"), rows)
    everything = [*fsdp, *others]
    gemms = Gemms(everything).rows()
    parts = [_shown(print_summary, summarize(one)) for one in (*everything, nothing)]
    parts += [_shown(print_summaries, [summarize(one) for one in (*everything, nothing)]),
              _shown(print_gemms, gemms, top=0), _shown(print_gemms, []),
              _shown(print_workload, workload(gemms)),
              *map(_steps, everything), _steps(*fsdp), _steps(fsdp[0], others[0]),
              _steps(pipelined(tmp_path))]  # fmt: skip
    for counts in ((0, 0), (1, 0), (1500, 1500), (3, 2)):
        kernels, unlinked = counts
        parts.append(outside_text(Outside(file=Path("a"), kernels=kernels, gemm_kernels=0,
                                          comm_kernels=0, unlinked=unlinked)))  # fmt: skip
    golden("traces_text", "\f\n".join(parts))


def test_jobs_are_shown_as_reviewed(kernels, trace, found, dumped, golden):
    """Of clocks that differ, a rank alone, groups of which ranks have no file (whose values are
    bounds), ranks without communication, and recorded jobs."""
    of_four = [replace(one, group=Group("g", (0, 1, 2, 3), 4)) for one in kernels(0)]
    jobs = (
        found(), found(shift=3_000_000), analyse_jobs([trace(0, kernels(0))]),
        analyse_jobs([trace(0, of_four), trace(1, of_four)]),
        analyse_jobs([trace(0, ()), trace(1, ())]),
        analyse_jobs([trace(0, kernels(0), "[bold]x[/bold]")]), _job("h200x4"), _job("hta_2of128"),
    )  # fmt: skip
    texts = [_shown(print_jobs, one) for one in jobs]
    assert not any("…" in text for text in texts[-2:])
    # Corrected values are next to recorded ones; kernels without a counterpart have no number.
    lone = analyse_jobs([trace(rank, kernels(0)[: 2 - rank], place)
                         for place in "ab" for rank in (0, 1)])  # fmt: skip
    errors = {"x.json": "x.json is empty"}
    documents = [collectives_document(one, errors) for one in (*jobs[:2], lone)]
    numbers = [row["collective"] for row in kernels_table(lone[:1]).records()]
    golden("traces_jobs", "\f\n".join([*texts, dumped(*documents, numbers)]))
    cells = [("2.0", "latency_us_median", False), ("2.0", "latency_us_median", True),
             ("", "busbw_gbps_median", False), ("7", "count", False)]  # fmt: skip
    assert [bounded(text, name, complete=complete) for text, name, complete in cells] == [
        "≤ 2.0", "2.0", "", "7",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "dtype", ["[/]", "[bold]x[/bold]", "\x1b[31mx", "x" * 500, "a\nb", "\ud800"]
)
def test_unknown_types_are_escaped_and_shortened(dtype, kernels, trace):
    ones = kernels(0)
    for ranks in (1, 2):
        traces = [trace(r, [replace(one, dtype=dtype) for one in ones]) for r in range(ranks)]
        text = _shown(print_jobs, analyse_jobs(traces))
        assert "\x1b" not in text and "\ud800" not in text
    if dtype.startswith("["):
        assert dtype in text


ODD = st.one_of(
    st.none(), st.integers(-5, 5), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from(["[0, 1]", "[1, 0]", "[]", "[0, ..., 1]", "Float", "send", "_allgather_base"]),
)  # fmt: skip
KEYS = ("Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size",
        "Process Group Name", "Process Group Ranks", "In split size", "Out split size", "Dst Rank",
        "Src Rank", "Seq")  # fmt: skip
EVENTS = st.tuples(
    st.integers(0, 2), st.integers(0, 50), st.dictionaries(st.sampled_from(KEYS), ODD)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, max_size=10))
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
    _shown(print_jobs, jobs)
    for found in jobs:
        counts = {one.rank: len(one.collectives) for one in found.job.ranks}
        matched = [rank for one in found.matching.matched for rank, _ in one.members]
        for rank, left in found.matching.unmatched.items():
            assert 0 <= left <= counts[rank] - matched.count(rank)


def test_shapes_and_a_notebooks_table():
    shapes = [(GemmShape(1, 2, 3), "bf16", "tn"), (GemmShape(1, 2, 3, 4), None, None),
              (None, "f32", None)]  # fmt: skip
    assert [shape_text(*one) for one in shapes] == [
        "1x2x3 bf16 tn", "4x1x2x3", "shape not known f32",
    ]  # fmt: skip
    html = notebook_table([summarize(_trace(FSDP[0]))], {"x": RequestError("<b>no</b>")})
    assert "rank 0 of 4" in html and "&lt;b&gt;no&lt;/b&gt;" in html
