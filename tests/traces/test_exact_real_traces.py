"""Every key of the summary, and all GEMM time, of real traces, compared with a second computation.

The digits of the file become whole nanoseconds as text, and one walk over all beginnings and ends
counts what is open. Only the grammar of kernel names is shared with the product.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemmetry.traces.gemms import Gemms
from gemmetry.traces.names import KernelKind, classify, is_communication, is_gemm
from gemmetry.traces.reading import find_traces
from gemmetry.traces.summary import summarize

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


def traces() -> list[Path]:
    committed = [
        path
        for path in (*(DATA / "traces").glob("*.json.gz"), *(DATA / "collectives").rglob("*.gz"))
        if "_et_" not in path.name
    ]
    return sorted([*committed, *(path for place in PLACES for path in LARGER.glob(place))])


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
    """By keys of the document, without the file and the top; times in ns."""
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


@pytest.mark.parametrize("path", traces(), ids=lambda path: "/".join(path.parts[-4:]))
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


@pytest.mark.skipif(not LARGER.is_dir(), reason="the larger traces are not here")
def test_no_larger_trace_is_left_out(read_real):
    found = find_traces([LARGER / "traces", LARGER / "sweep_h200x4"])
    assert len(found) >= 50
    others = {*found} - {*traces()}
    assert {path.suffix for path in others} == {".csv"}, "tables are read by another reader"
    for path in others:
        rows = read_real(path).rows
        assert not rows.partial, path
        assert rows.problems == (), path
        assert 0 < len(rows.gpu.start_ns) <= rows.events, path
        assert (rows.gpu.duration_ns >= 0).all(), path
