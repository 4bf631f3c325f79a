from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.formats.events import MISSING, GpuKind, ProblemKind, TraceRows
from gemmetry.formats.rocm.rocprofv3 import read_rocprofv3_json

SAMPLE = Path(__file__).parents[2] / "data" / "traces" / "mi350x_908_part_results.json.gz"


def dispatch(kernel: int, start: int, end: int, grid: int = 1024, **more: Any) -> dict[str, Any]:
    return {
        "kind": 3, "operation": 1, "thread_id": 20,
        "correlation_id": {"internal": 5, "external": 0},
        "start_timestamp": start, "end_timestamp": end, "stream_id": {"handle": 2},
        "dispatch_info": {
            "agent_id": {"handle": 11}, "queue_id": {"handle": 1}, "kernel_id": kernel,
            "workgroup_size": {"x": 64, "y": 1, "z": 1}, "grid_size": {"x": grid, "y": 2, "z": 1},
        },
    } | more  # fmt: skip


def record(kind: int, operation: int, start: int = 1, end: int = 2, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind, "operation": operation, "thread_id": 20, "start_timestamp": start,
        "end_timestamp": end, "correlation_id": {"internal": 5, "external": 0},
    } | more  # fmt: skip


def process(pid: int = 100, name: str = "gemm", **buffers: Any) -> dict[str, Any]:
    return {
        "metadata": {"pid": pid, "node": {"hostname": "node-7"}},
        "agents": [
            {"id": {"handle": 10}, "type": 1, "name": "EPYC", "gpu_index": -1},
            {"id": {"handle": 11}, "type": 2, "name": "gfx950", "gpu_index": 0,
             "product_name": "AMD Instinct MI350X"},
        ],
        "strings": {
            "buffer_records": [
                {"kind": "NONE", "operations": []},
                {"kind": "HIP_RUNTIME_API", "operations": ["NONE", "hipLaunchKernel"]},
                {"kind": "MEMORY_COPY", "operations": ["", "MEMORY_COPY_HOST_TO_DEVICE"]},
                {"kind": "KERNEL_DISPATCH", "operations": []},
                {"kind": "RCCL_API", "operations": ["ncclAllReduce"]},
            ],
            "marker_api": [{"key": 9, "value": 'step "3"'}],
        },
        "kernel_symbols": [
            {"kernel_id": 7, "kernel_name": "_Z4gemm.kd",
             "formatted_kernel_name": f"{name} [clone .kd]"},
            {"kernel_id": 8, "kernel_name": "other.kd"},
        ],
        "callback_records": {"counter_collection": []},
        "buffer_records": buffers,
    }  # fmt: skip


def rows_of(*processes: Any, cut: int | None = None, **options: Any) -> TraceRows:
    text = json.dumps({"rocprofiler-sdk-tool": list(processes)}).encode()
    rows = read_rocprofv3_json(io.BytesIO(text[:cut]), **options)
    assert rows is not None
    return rows


def names(rows: TraceRows, table: str) -> list[str]:
    return [rows.names[i] for i in getattr(rows, table).name]


def test_a_small_document_in_normal_form():
    rows = rows_of(
        process(
            kernel_dispatch=[dispatch(7, 1000, 1500), dispatch(8, 2000, 2001, grid=65)],
            memory_copy=[record(2, 1, 10, 30, bytes=256, dst_agent_id={"handle": 11})],
            hip_api=[record(1, 1)],
            rccl_api=[record(4, 0)],
            marker_api=[record(0, 0, correlation_id={"internal": 9})],
            hsa_api=[],
        )
    )
    assert rows.format == "rocprofv3-json"
    assert names(rows, "gpu") == ["gemm", "other", "MEMORY_COPY_HOST_TO_DEVICE"]
    assert rows.gpu.start_ns.tolist() == [1000, 2000, 10]
    assert rows.gpu.duration_ns.tolist() == [500, 1, 20]
    # Work-items / workgroup size, rounded up.
    assert rows.gpu.grid.tolist() == [[16, 2, 1], [2, 2, 1], [0, 0, 0]]
    assert rows.gpu.block[0].tolist() == [64, 1, 1]
    assert rows.gpu.kind.tolist() == [GpuKind.KERNEL, GpuKind.KERNEL, GpuKind.MEMCPY]
    assert rows.gpu.bytes.tolist() == [MISSING, MISSING, 256]
    assert rows.gpu.stream.tolist() == [2, 2, 0]
    assert rows.gpu.device.tolist() == [0, 0, 0]
    assert rows.gpu.correlation.tolist() == rows.calls.correlation.tolist() * 3 == [5, 5, 5]
    assert names(rows, "calls") == ["hipLaunchKernel"]
    assert names(rows, "operators") == ["ncclAllReduce"]
    assert names(rows, "annotations") == ['step "3"']
    assert rows.threads == ("100/20",)
    assert (rows.devices, rows.host) == ({0: "AMD Instinct MI350X"}, "node-7")
    assert (rows.events, rows.problems, rows.partial) == (6, (), False)


def test_processes_keep_their_own_names():
    rows = rows_of(
        process(1, "first", kernel_dispatch=[dispatch(7, 1, 2)]),
        process(2, "second", kernel_dispatch=[dispatch(7, 3, 4)]),
    )
    assert names(rows, "gpu") == ["first", "second"]
    assert rows.rank is None


def test_the_rank_of_a_process_from_its_environment():
    one = process(kernel_dispatch=[dispatch(7, 1, 2)])
    one["metadata"]["environment"] = {"RANK": "3", "WORLD_SIZE": "8", "X": "secret"}
    assert (rows_of(one).rank, rows_of(one).world_size) == (3, 8)
    assert rows_of(one, one).rank is None


def test_invalid_times_and_numbers_that_do_not_fit():
    rows = rows_of(
        process(
            kernel_dispatch=[
                dispatch(7, 5, 3),
                dispatch(7, -4, 3),
                dispatch(7, 1, 2**63),
                dispatch(7, 1, 2, correlation_id={"internal": 2**64 - 1}),
                dispatch(99, 1, 2),
            ]
        )
    )
    assert names(rows, "gpu")[3:] == ["gemm", "kernel 99"]
    assert rows.gpu.correlation.tolist()[3:] == [MISSING, 5]
    # Work without a usable time is left out later, as that of every format is.
    assert rows.gpu.start_ns.tolist()[:3] == rows.gpu.duration_ns.tolist()[:3] == [0, 0, 0]


def test_a_damaged_record_is_left_out_alone():
    bad = dispatch(7, 1, 2, start_timestamp="x")
    rows = rows_of(process(kernel_dispatch=[dispatch(7, 1, 2), bad, dispatch(8, 3, 4)]))
    assert names(rows, "gpu") == ["gemm", "other"]
    assert rows.problems[0].count == 1
    assert rows.problems[1].where.startswith("byte ")
    assert rows.partial


@pytest.mark.parametrize("ranks", [None, ("3", "1")])
def test_processes_in_one_file_are_parts(ranks):
    """Each counts its correlations from 1."""
    processes = []
    for place in range(2):
        metadata = {"pid": 70 + place}
        if ranks:
            metadata["environment"] = {"RANK": ranks[place], "WORLD_SIZE": "4"}
        made = process(kernel_dispatch=[dispatch(7, 1 + place, 2 + place)])
        processes.append({**made, "metadata": metadata})
    text = json.dumps({"rocprofiler-sdk-tool": processes})
    rows = read_rocprofv3_json(io.BytesIO(text.encode()))
    assert rows is not None
    assert [part.name for part in rows.parts] == ["process 70", "process 71"]
    assert [part.rank for part in rows.parts] == ([3, 1] if ranks else [None, None])
    assert rows.gpu.part.tolist() == [0, 1]
    assert (rows.rank, rows.world_size) == (None, 4 if ranks else None)


def test_a_second_document_is_named_and_not_read():
    whole = json.dumps({"rocprofiler-sdk-tool": [process(kernel_dispatch=[dispatch(7, 1, 2)])]})
    rows = read_rocprofv3_json(io.BytesIO(f"{whole}\n{whole}".encode()))
    assert rows is not None
    assert len(rows.gpu.start_ns) == 1
    [problem] = rows.problems
    assert (problem.kind, problem.where) == (
        ProblemKind.SECOND_DOCUMENT, f"byte {len(whole) + 1}",
    )  # fmt: skip
    assert rows.partial


def test_another_document():
    assert read_rocprofv3_json(io.BytesIO(b'{"traceEvents": []}')) is None
    assert read_rocprofv3_json(io.BytesIO(b"")) is None
    assert read_rocprofv3_json(io.BytesIO(b'{"rocprofiler-sdk-tool": [3, null]}')) is not None


@given(st.integers(0, 400))
@settings(deadline=None, max_examples=60)
def test_a_file_cut_anywhere_gives_its_complete_records(missing):
    whole = process(kernel_dispatch=[dispatch(7, i, i + 1) for i in range(20)], hip_api=[])
    rows = rows_of(whole, cut=-missing or None, chunk_bytes=512)
    count = len(rows.gpu.start_ns)
    assert rows.gpu.start_ns.tolist() == list(range(count))
    assert names(rows, "gpu") == ["gemm"] * count
    # Names and agents are known as well, since they stand before the records.
    assert rows.gpu.device.tolist() == [0] * count


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_damage_anywhere_raises_nothing(data):
    document = {"rocprofiler-sdk-tool": [process(kernel_dispatch=[dispatch(7, 1, 2)] * 3)]}
    text = bytearray(json.dumps(document).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    stream, chunk_bytes = io.BytesIO(bytes(text)), data.draw(st.integers(1, 2000))
    rows = read_rocprofv3_json(stream, chunk_bytes=chunk_bytes)
    if rows is None:  # Not even the kind of document can be recognised.
        return
    assert (rows.gpu.start_ns > 0).sum() <= 3, "damage invents no dispatch that has a time"
    assert (rows.gpu.duration_ns >= 0).all()


def rows_of_sample(**options: Any) -> TraceRows:
    rows = read_rocprofv3_json(io.BytesIO(gzip.decompress(SAMPLE.read_bytes())), **options)
    assert rows is not None
    return rows


def test_a_real_file():
    [tool] = json.loads(gzip.decompress(SAMPLE.read_bytes()))["rocprofiler-sdk-tool"]
    records = tool["buffer_records"]["kernel_dispatch"]
    rows = rows_of_sample()
    assert rows.events == len(records) == 200
    assert int(rows.gpu.duration_ns.sum()) == sum(
        r["end_timestamp"] - r["start_timestamp"] for r in records
    )
    symbols = {s["kernel_id"]: s["formatted_kernel_name"] for s in tool["kernel_symbols"]}
    expected = Counter(
        symbols[r["dispatch_info"]["kernel_id"]].removesuffix(" [clone .kd]") for r in records
    )
    found = Counter(names(rows, "gpu"))
    assert {n.removesuffix(".kd"): c for n, c in expected.items()} == found
    assert set(rows.devices.values()) == {"AMD Instinct MI350X"}
    assert (rows.gpu.grid > 0).all()


@pytest.mark.parametrize("chunk_bytes", [1024, 50_000])
def test_the_rows_do_not_depend_on_the_size_of_a_piece(chunk_bytes):
    whole, parts = rows_of_sample(), rows_of_sample(chunk_bytes=chunk_bytes)
    assert np.array_equal(whole.gpu.start_ns, parts.gpu.start_ns)
    assert names(whole, "gpu") == names(parts, "gpu")
    assert whole.problems == parts.problems == ()
