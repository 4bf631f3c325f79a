"""Real traces: every key of the summary and all GEMM time, compared with a second computation and
with the numbers of TraceLens.

The traces in ``tests/data/traces`` are always tried. Larger ones are in the folder that
``GEMMETRY_TRACES`` names, or else next to the checkout; they are left out where there are none.

In the second computation the digits of the file become whole nanoseconds as text. One walk over all
beginnings and ends counts what is open. Only the grammar of kernel names is shared with the
product.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmetry.documents.operator_tables import trace_tables
from gemmetry.formats import events as spool
from gemmetry.traces.gemms import Gemms, link_gemms, row_major_layout, workload
from gemmetry.traces.model import Trace
from gemmetry.traces.names import KernelKind, classify, is_communication, is_gemm
from gemmetry.traces.reading import find_traces, read_trace
from gemmetry.traces.summary import outside_steps, summarize, summarize_steps

DATA = Path(__file__).parents[1] / "data"
LARGER = Path(os.environ.get("GEMMETRY_TRACES", "") or DATA.parents[2] / "shared" / "data")
PLACES = (
    "traces/kineto/*.json.gz", "traces/multirank/*/*.json.gz", "traces/rocprofv3/*_results.json.gz",
    "sweep_h200x4/*/*/*/*.pt.trace.json.gz", "kineto_et_h200/*.pt.trace.json",
)  # fmt: skip
KINDS = {
    "kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill",
    "Kernel": "kernel", "Memcpy": "copy", "Memset": "fill",
}  # fmt: skip
LOOKS_LIKE_A_GEMM = re.compile(r"(?i)gemm|gemv|Cijk_|nvjet|split_?k|matmul|triton_(?:tem|mm)")
IS_NO_GEMM = re.compile(
    r"(?i)conv|cudnn|cask|fprop|wgrad|dgrad|bwd_weight|igemm_|fbgemm|flash|fmha|attention"
)


def _is_tried(path: Path) -> bool:
    """Traces of the sweep are alike: one rank of each point is tried, and all ranks of one."""
    is_of_sweep = "torch_profiler" in path.parts
    return "_et_" not in path.name and (
        not is_of_sweep or path.name[:5] == "rank0" or "256thread/nccl_4" in str(path)
    )


COMMITTED = [*(DATA / "traces").glob("*.json.gz"), *(DATA / "collectives").rglob("*.gz")]
FOUND = [*COMMITTED, *(path for place in PLACES for path in LARGER.glob(place))]
TRACES = sorted(filter(_is_tried, FOUND))
TABLES = sorted((DATA / "traces").glob("*kernel_trace.csv"))

_TIMELINES = json.loads((DATA / "tracelens_gpu_timeline.json").read_text())["files"]
ORACLE = {
    path: recorded
    for name, recorded in _TIMELINES.items()
    for path in (DATA / "traces" / name.removeprefix("committed/"), LARGER / name)
    if path in TRACES
}
"""Numbers of TraceLens, for traces that are here."""
OURS = {
    "computation_us": "compute_union_ns", "exposed_comm_us": "exposed_comm_ns",
    "busy_us": "busy_ns", "idle_us": "idle_ns", "total_us": "window_ns",
    "total_comm_us": "comm_union_ns", "total_memcpy_us": "memcpy_union_ns",
}  # fmt: skip


def about(paths: Iterable[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=lambda path: "/".join(path.parts[-4:]))


def nanoseconds(text: str) -> int:
    """µs with at most three decimals, as the file has them."""
    whole, _, part = text.partition(".")
    assert not part[3:].strip("0"), text
    return int(whole) * 1000 + int(part[:3].ljust(3, "0"))


def launchers(events: list[dict[str, Any]]) -> Callable[[dict[str, Any]], str]:
    """Name of the operator that launched a kernel: by the number that both carry, else the shortest
    one around the call with the kernel's correlation number; "" for none."""

    def number(event: dict[str, Any], key: str) -> str:
        return str(event.get("args", {}).get(key, ""))

    by_number: dict[str, str] = {}
    calls: dict[str, dict[str, Any]] = {}
    by_thread: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event.get("cat") in ("cpu_op", "Operator"):
            by_number[number(event, "External id") or number(event, "external id")] = event["name"]
            by_thread.setdefault(str(event["tid"]), []).append(event)
        elif event.get("cat") in ("cuda_runtime", "Runtime", "cuda_driver"):
            calls[number(event, "correlation")] = event

    def launcher(kernel: dict[str, Any]) -> str:
        recorded = number(kernel, "External id") or number(kernel, "external id")
        if recorded in by_number or number(kernel, "correlation") not in calls:
            return by_number.get(recorded, "")
        call = calls[number(kernel, "correlation")]
        at = float(call["ts"])
        around = [
            (float(one["dur"]), one["name"])
            for one in by_thread.get(str(call["tid"]), ())
            if float(one["ts"]) <= at < float(one["ts"]) + float(one["dur"])
        ]
        return min(around)[1] if around else ""

    return launcher


def work_of(path: Path) -> tuple[int, list[tuple[str, str, int, int]]]:
    """Entries of the file, and (kind, name, start, duration) of all work on GPUs; kernels of
    convolution operators, by the operator's number that they carry, are a kind of their own."""
    text, work = path.read_bytes(), []
    document = json.loads(
        gzip.decompress(text) if path.suffix == ".gz" else text, parse_float=str, parse_int=str
    )
    if "traceEvents" in document:
        events = document["traceEvents"]
        has_convolutions = any("conv" in event["name"].lower() for event in events)
        launcher = launchers(events) if has_convolutions else lambda _event: ""
        for event in events:
            if event.get("cat") in KINDS and event["ph"] == "X":
                kind, name = KINDS[event["cat"]], event["name"]
                if kind == "kernel" and is_gemm(name) and "conv" in launcher(event).lower():
                    kind = "kernel of convolution"
                work.append((kind, name, nanoseconds(event["ts"]), nanoseconds(event["dur"])))
        return len(events), work
    entries = 0
    for process in document["rocprofiler-sdk-tool"]:
        names = {s["kernel_id"]: s["formatted_kernel_name"] for s in process["kernel_symbols"]}
        records = process["buffer_records"]
        entries += sum(map(len, (records[key] for key in ROCPROFV3 if key in records)))
        for record in (*records["kernel_dispatch"], *records["memory_copy"]):
            kind, name = "copy", ""
            if "dispatch_info" in record:
                kind = "kernel"
                name = names[record["dispatch_info"]["kernel_id"]].removesuffix(".kd")
            start, end = int(record["start_timestamp"]), int(record["end_timestamp"])
            work.append((kind, name, start, end - start))
    return entries, work


ROCPROFV3 = ("kernel_dispatch", "memory_copy", "hip_api", "hsa_api", "marker_api", "rccl_api")


def expected(entries: int, work: list[tuple[str, str, int, int]]) -> dict[str, object]:
    """Values by keys of the document, without the file and the top; times in ns."""
    edges = []
    counts, sums = Counter[str](), Counter[str]()
    for kind, name, start, duration in work:
        what = {"busy"}
        if kind.startswith("kernel"):
            counts["kernels"] += 1
            what.add("comm" if is_communication(name) else "compute")
            what |= {"gemm"} if kind == "kernel" and is_gemm(name) else set()
            for one in what & {"comm", "gemm"}:
                counts[f"{one}_kernels"] += 1
                sums[one] += duration
        else:
            what.add("compute" if kind == "fill" else "copy")
        edges += [(start, 1, what), (start + duration, -1, what)]
    edges.sort(key=lambda edge: edge[0])
    times, on = Counter[str](), Counter[str]()
    before = edges[0][0] if edges else 0
    begin = before
    for moment, step, what in edges:
        for name, holds in {
            "busy": on["busy"], "compute_union": on["compute"], "comm_union": on["comm"],
            "memcpy_union": on["copy"], "exposed_comm": on["comm"] and not on["compute"],
            "comm_compute_overlap": on["comm"] and on["compute"],
            "gemm_comm_overlap": on["comm"] and on["gemm"],
        }.items():  # fmt: skip
            times[name] += (moment - before) if holds else 0
        for name in what:
            on[name] += step
        before = moment
    times["window"] = before - begin
    times["idle"] = times["window"] - times["busy"]
    times["gemm_kernel"], times["comm_kernel"] = sums["gemm"], sums["comm"]
    names = ("kernels", "gemm_kernels", "comm_kernels")
    return {
        "events": entries,
        "launches_without_work": 0,
        **{name: counts[name] for name in names},
        **{f"{name}_us": time for name, time in times.items()},
    }


@about(TRACES)
def test_every_key_and_all_gemm_time(path, read_real):
    gc.disable()  # a document is no garbage; looking for some takes as long as reading it
    try:
        entries, work = work_of(path)
    finally:
        gc.enable()
    names = {name for kind, name, *_ in work if kind.startswith("kernel")}
    assert {name for name in names if classify(name).kind is KernelKind.OTHER} == set()
    trace = read_real(path)
    assert not trace.rows.partial
    assert trace.rows.problems == ()
    assert len(trace.rows.gpu.start_ns) == len(work)
    recorded = summarize(trace).record()
    found = {
        key: round(1000 * value) if key.endswith("_us") else value
        for key, value in recorded.items()
        if key not in ("file", "top_gemms", "partial")
    }
    assert found == expected(entries, work)

    of_name: dict[str, list[int]] = {}
    for kind, name, _, duration in work:
        if kind == "kernel" and is_gemm(name):
            of_name.setdefault(name, []).append(duration)
    first = sorted(of_name.items(), key=lambda item: (-sum(item[1]), item[0]))[:10]
    tops = zip(recorded["top_gemms"], first, strict=True)
    for gemm, (name, ns) in tops:
        assert (gemm["name"], gemm["count"]) == (name, len(ns))
        times = [round(1000 * gemm[key]) for key in ("sum_us", "min_us", "max_us")]
        assert times == [sum(ns), min(ns), max(ns)]

    # Linked to an operator or not: the rows of `trace gemms` hold all of it.
    by_kernel: dict[str, Counter[str]] = {}
    for row in Gemms([trace]).rows():
        by_kernel.setdefault(row.kernel, Counter()).update(count=row.count, ns=row.sum_ns)
    assert by_kernel == {name: Counter(count=len(ns), ns=sum(ns)) for name, ns in of_name.items()}

    # Plain words also show what is a GEMM (for cuBLAS's templates only the arguments do).
    kernels = {name for kind, name, *_ in work if kind == "kernel"}
    crude = {name for name in kernels if LOOKS_LIKE_A_GEMM.search(name)}
    assert {name for name in of_name if "cublas" not in name} <= crude
    assert {name for name in crude if not IS_NO_GEMM.search(name)} <= set(of_name)


@about(ORACLE)
def test_the_timeline_is_tracelens(path, read_real):
    """TraceLens keeps times as float64, whose neighbours are `clock_spacing_us` apart: each end
    of an interval may be off by half of it. Beyond that the numbers agree to 1e-4."""
    trace, recorded = read_real(path), ORACLE[path]
    summary = summarize(trace)
    if "error" in recorded:
        # TraceLens cannot read it; the test only shows that gemmetry can.
        assert summary.window_ns > 0
        return
    rounding = recorded["clock_spacing_us"] * (len(trace.rows.gpu.start_ns) + 1)
    for theirs, ours in OURS.items():
        found = getattr(summary, ours) / 1000
        assert found == pytest.approx(recorded[theirs], rel=1e-4, abs=rounding), theirs


@about([*TRACES, *TABLES])
def test_numbers_of_gemms_and_of_steps_agree_with_those_of_all(path, read_real):
    trace = read_real(path)
    rows = Gemms([trace]).rows()
    load, summary = workload(rows), summarize(trace)
    assert sum(gemm.sum_ns for gemm in load.gemms) + load.unknown_ns == load.sum_ns
    assert summary.gemm_kernel_ns == load.sum_ns == sum(row.sum_ns for row in rows)
    assert summary.gemm_kernels == sum(row.count for row in rows)
    for row in rows:
        assert row.linked + row.inferred == (row.count if row.shape else 0)
        assert 0 <= row.overlapped_ns <= row.sum_ns
        assert row.min_ns <= row.p5_ns <= row.median_ns <= row.p95_ns <= row.max_ns
        # No kernel is faster than its device: a shape of something else would be.
        assert row.peak_fraction is None or 0 < row.peak_fraction < 1
        # The kernel's name and the operator's strides are independent sources of the layout.
        if row.shape and row.shape.layout and row.facts.layout and row.facts.kind != "gemv":
            assert row_major_layout(row.facts.layout) == row.shape.layout, row.kernel
    steps = summarize_steps(trace)
    for step in steps:
        assert step.busy_ns + step.others_ns + step.idle_ns == step.window_ns <= summary.window_ns
    assert sum(step.kernels for step in steps) + outside_steps(trace).kernels == summary.kernels


@about([path for path in TRACES if "torch_profiler" in path.parts])
def test_inferred_shapes_are_those_of_the_same_place_in_another_step(path, read_real):
    """The 72 GEMMs of a step come in the same order in each step of this job."""
    trace = read_real(path)
    links = link_gemms(trace)
    gpu = trace.rows.gpu
    order = np.argsort(gpu.start_ns[links.row], kind="stable")
    shape, inferred = links.shape[order], links.inferred[order]
    kernel = gpu.name[links.row][order]
    truth = np.where(inferred, -1, shape)
    for index in range(len(truth) - 73, -1, -1):
        if truth[index] < 0 and kernel[index] == kernel[index + 72]:
            truth[index] = truth[index + 72]
    checked = inferred & (truth >= 0)
    assert checked.sum() >= 30
    # 0.64 have a launch and 0.75 a shape; the others stay unknown, as something else speaks against
    # one.
    assert (shape >= 0).mean() > 0.7
    assert (shape[checked] == truth[checked]).all()
    # Steps hold their backward pass.
    steps = summarize_steps(trace)
    assert [(step.step.number, step.gemm_kernels) for step in steps] == [(3, 72), (4, 72), (5, 72)]


@about([path for path in (*TRACES, *TABLES) if path in COMMITTED or "ddp_rank" in path.name
        or path in TABLES])  # fmt: skip
def test_what_is_read_like_a_huge_trace_gives_the_same_tables(path, read_real, monkeypatch):
    def tables(trace):
        summary = summarize(trace)
        rest = (summary, summarize_steps(trace), Gemms([trace]).rows())
        return [*trace_tables(trace, summary), *rest]

    expected = tables(read_real(path))
    # Everything is in files and released between the steps; calls and operators without work are
    # left out.
    monkeypatch.setattr(spool.Spool.__init__, "__kwdefaults__", {"most_bytes": 5000})
    monkeypatch.setattr(spool, "KEPT_BYTES", 0)
    monkeypatch.setattr(spool, "KEPT_MAPPED_BYTES", 0)
    assert tables(Trace(path, read_trace(path, use_cache=False))) == expected


@pytest.mark.skipif(not LARGER.is_dir(), reason="the larger traces are not here")
def test_no_larger_trace_is_left_out(read_real):
    found = find_traces([LARGER / "traces", LARGER / "sweep_h200x4"])
    assert len(found) >= 50
    others = {*found} - {*FOUND}
    assert {path.suffix for path in others} == {".csv"}, "tables are read by another reader"
    for path in others:
        rows = read_real(path).rows
        assert not rows.partial, path
        assert rows.problems == (), path
        assert 0 < len(rows.gpu.start_ns) <= rows.events, path
        assert (rows.gpu.duration_ns >= 0).all(), path
