from __future__ import annotations

import dataclasses
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

from gemmetry.domain.opening import open_decompressed
from gemmetry.formats import events as host_rows
from gemmetry.formats import events as spool
from gemmetry.formats.events import MISSING, GpuKind, TraceRows
from gemmetry.formats.kineto import read_kineto

SAMPLES = Path(__file__).parents[2] / "data" / "traces"
KINETO = sorted(
    {*SAMPLES.glob("*.json.gz")} - {*SAMPLES.glob("chakra*")} - {*SAMPLES.glob("*_et_*")}
    - {*SAMPLES.glob("*_results.json.gz")}
)  # fmt: skip


def kernel(name: str = "gemm", ts: Any = 10.0, dur: Any = 5.0, **args: Any) -> dict[str, Any]:
    recorded = {"device": 0, "stream": 7, "correlation": 1, "grid": [1, 2, 3], "block": [4, 5, 6]}
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur,
        "args": recorded | args,
    }  # fmt: skip


def call(ts: Any = 1.0, dur: Any = 2.0, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 3, "tid": 4, "ts": ts,
        "dur": dur, "args": {"correlation": 1, "External id": 9} | args,
    }  # fmt: skip


def operator(name: str = "aten::mm", ts: Any = 0.5, dur: Any = 4.0, **args: Any) -> dict[str, Any]:
    recorded = {"External id": 9, "Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": 3, "tid": 4, "ts": ts, "dur": dur,
        "args": recorded | args,
    }  # fmt: skip


def document(*events: Any, **more: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, **more, "traceEvents": list(events)}).encode()


def rows_of(text: bytes, **options: Any) -> TraceRows:
    rows = read_kineto(io.BytesIO(text), **options)
    assert rows is not None
    return rows


def comparable(rows: TraceRows) -> dict[str, Any]:
    """Everything that was read, with texts in place of their numbers, which follow the order of
    reading."""
    found: dict[str, Any] = {
        "events": rows.events, "partial": rows.partial, "problems": rows.problems
    }  # fmt: skip
    texts = {
        "name": rows.names, "thread": rows.threads, "arguments": rows.arguments,
        "collective": (*rows.collectives, None),
    }  # fmt: skip
    for table in ("gpu", "calls", "operators", "annotations"):
        columns = getattr(rows, table)
        for column in dataclasses.fields(columns):
            values = getattr(columns, column.name).tolist()
            of = texts.get(column.name)
            found[f"{table}.{column.name}"] = [of[v] for v in values] if of else values
    return found


def test_a_small_document_in_normal_form():
    rows = rows_of(
        document(
            {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "python"}},
            operator(**{"Sequence number": 3, "Fwd thread id": 1, "Input Strides": [[3, 1]]}),
            call(),
            kernel("gemm", 10.5, 5.25, **{"External id": 9}),
            kernel("gemm", 20, 1),
            {**kernel("Memcpy HtoD", 30, 2, bytes=1024), "cat": "gpu_memcpy"},
            {**kernel("Memset", 33, 1), "cat": "gpu_memset"},
            {**operator("ProfilerStep#3", 0, 50), "cat": "user_annotation"},
            {**kernel("ProfilerStep#3", 9, 40), "cat": "gpu_user_annotation"},
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1.0},
            baseTimeNanoseconds=1_700_000_000_000_000_000,
            distributedInfo={"backend": "nccl", "rank": 2, "world_size": 8},
            deviceProperties=[{"id": 0, "name": "NVIDIA H200"}],
            trace_id="job 7",
            host_name="node-1",
            cuda_runtime_version=13000,
        )
    )
    assert rows.gpu.start_ns.tolist() == [10500, 20000, 30000, 33000]
    assert rows.gpu.duration_ns.tolist() == [5250, 1000, 2000, 1000]
    assert rows.gpu.kind.tolist() == [GpuKind.KERNEL, GpuKind.KERNEL, GpuKind.MEMCPY,
                                      GpuKind.MEMSET]  # fmt: skip
    assert [rows.names[i] for i in rows.gpu.name] == ["gemm", "gemm", "Memcpy HtoD", "Memset"]
    assert rows.gpu.grid[0].tolist() == [1, 2, 3]
    assert rows.gpu.block[0].tolist() == [4, 5, 6]
    assert rows.gpu.external_id.tolist() == [9, MISSING, MISSING, MISSING]
    assert rows.gpu.bytes.tolist() == [MISSING, MISSING, 1024, MISSING]
    assert rows.calls.correlation.tolist() == [1]
    assert rows.threads[rows.calls.thread[0]] == rows.threads[rows.operators.thread[0]] == "3/4"
    recorded = rows.arguments[rows.operators.arguments[0]]
    assert json.loads(recorded.shapes) == [[2, 3], [3, 4]]
    assert json.loads(recorded.strides) == [[3, 1]]
    assert (recorded.values, rows.operators.sequence.tolist()) == ("", [3])
    assert rows.annotations.on_gpu.tolist() == [0, 1]
    assert (rows.rank, rows.world_size, rows.host, rows.job) == (2, 8, "node-1", "job 7")
    assert rows.devices == {0: "NVIDIA H200"}
    assert rows.versions == {"cuda_runtime_version": "13000", "schemaVersion": "1"}
    assert rows.base_ns == 1_700_000_000_000_000_000
    assert rows.events == 10
    assert (rows.problems, rows.partial) == ((), False)


def test_categories_of_2021():
    rows = rows_of(
        document(
            {**kernel(**{"external id": 5}), "cat": "Kernel"},
            {**kernel(), "cat": "Memcpy"},
            {**call(**{"external id": 5}), "cat": "Runtime"},
            {**operator(), "cat": "Operator"},
        )
    )
    assert rows.gpu.kind.tolist() == [GpuKind.KERNEL, GpuKind.MEMCPY]
    assert rows.gpu.external_id[0] == 5
    assert len(rows.calls.start_ns) == len(rows.operators.start_ns) == 1


def test_a_document_that_is_an_array_itself():
    rows = rows_of(json.dumps([kernel(), call()]).encode())
    assert (rows.events, len(rows.gpu.start_ns), rows.partial) == (2, 1, False)
    open_end = rows_of(json.dumps([kernel(), call()]).encode()[:-1])
    assert (open_end.events, open_end.partial) == (2, True)


def test_metadata_before_and_after_the_events():
    text = document(kernel(), distributedInfo={"rank": 1, "world_size": 2}).decode()
    text = text[:-1] + ', "baseTimeNanoseconds": 77, "traceName": "x"}'
    rows = rows_of(text.encode())
    assert (rows.rank, rows.base_ns) == (1, 77)


def test_no_events_and_no_gpu():
    assert rows_of(document()).events == 0
    rows = rows_of(document(operator()))
    assert len(rows.gpu.start_ns) == 0
    assert len(rows.operators.start_ns) == 1
    assert read_kineto(io.BytesIO(b'{"schemaVersion": 1}')) is None
    assert read_kineto(io.BytesIO(b"")) is None


def test_collectives_with_equal_metadata_are_stored_once():
    recorded = {
        "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 10,
        "Out msg nelems": 40, "Group size": 4, "Process Group Name": "0",
        "Process Group Ranks": "[0, 1, 2, 3]", "In split size": "[]",
    }  # fmt: skip
    rows = rows_of(
        document(
            *[kernel(f"nccl {i}", **recorded) for i in range(50)], operator(**recorded), kernel()
        )
    )
    assert rows.gpu.collective.tolist() == [0] * 50 + [MISSING]
    assert rows.operators.collective.tolist() == [0]
    [one] = rows.collectives
    assert (one.operation, one.dtype, one.in_elements, one.out_elements) == (
        "_allgather_base", "BFloat16", 10, 40,
    )  # fmt: skip
    assert (one.group_size, one.group_name, one.group_ranks) == (4, "0", (0, 1, 2, 3))


# What may be wrong with a file.


def test_pytorchs_record_of_a_collective_is_an_operator_whatever_its_category():
    recorded = operator("nccl:all_reduce", **{"Input Dims": [[64]], "Input type": ["float"]})
    rows = rows_of(
        document(
            {**recorded, "cat": "user_annotation"},
            {**recorded, "cat": "gpu_user_annotation"},
            {**recorded, "cat": "user_annotation", "name": "forward"},
        )
    )
    assert [rows.names[name] for name in rows.operators.name] == ["nccl:all_reduce"]
    assert rows.arguments[int(rows.operators.arguments[0])].shapes == "[[64]]"
    assert len(rows.annotations.name) == 3


def test_ranks_of_a_large_group_are_filled_in_where_they_are_evenly_spaced():
    def ranks(text: str, size: int) -> tuple[int, ...]:
        recorded = {"Collective name": "allreduce", "Process Group Ranks": text, "Group size": size}
        return rows_of(document(kernel(**recorded))).collectives[0].group_ranks

    assert ranks("[4, 5, 6]", 3) == (4, 5, 6)
    assert ranks("[0, 2, 4, ..., 62]", 32) == tuple(range(0, 64, 2))
    assert ranks("[0, 2, 4, ..., 62]", 40) == ()
    assert ranks("[0, 2, 5, ..., 62]", 32) == ()


def test_the_number_of_a_collective_in_its_group():
    recorded = {"Collective name": "allreduce", "Seq": 17}
    assert rows_of(document(kernel(**recorded))).collectives[0].sequence == 17


def test_a_file_cut_anywhere_gives_its_complete_events():
    text = document(operator(), *[kernel(f"k{i}", 10.0 + i) for i in range(30)])
    whole = rows_of(text)
    for cut in range(text.index(b"[") + 1, len(text), 7):
        rows = rows_of(text[:cut], chunk_bytes=1024)
        assert rows.gpu.start_ns.tolist() == whole.gpu.start_ns[: len(rows.gpu.start_ns)].tolist()
        assert rows.partial == (cut < text.rindex(b"]") + 1), cut
        if rows.partial:
            assert rows.problems[-1].where.startswith("byte ")


def test_work_without_a_usable_time_begins_at_0_and_takes_none():
    """So that it is left out and counted as such work of every format is (gemmetry.traces)."""
    bad = [kernel("a", ts=None), kernel("b", dur="x"), kernel("c", ts=1e300), kernel("d", dur=-3.5)]
    no_time = kernel("e")
    del no_time["ts"], no_time["dur"]
    text = document(kernel("first"), *bad, no_time, kernel("last", 50)).decode()
    rows = rows_of(text.replace("null", "NaN").encode())
    zeros = (rows.gpu.start_ns == 0) & (rows.gpu.duration_ns == 0)
    assert [rows.names[i] for i in rows.gpu.name[~zeros]] == ["first", "last"]
    assert rows.problems == ()


@pytest.mark.parametrize(
    ("head", "count"),
    [
        ({"droppedRecords": 12}, 12), ({"CUPTI": {"records lost": "7"}}, 7),
        ({"data_loss": True}, 1), ({"dropped": 0}, 0), ({"note": "dropped: 3"}, 0), ({}, 0),
    ],
)  # fmt: skip
def test_what_the_recorder_states_to_be_missing(head, count):
    rows = rows_of(json.dumps({**head, "traceEvents": [kernel()]}).encode())
    assert [problem.count for problem in rows.problems] == ([count] if count else [])
    assert rows.partial == bool(count)


def test_invalid_times_of_the_host_are_left_out_and_named():
    bad = [
        {**kernel(name, **times), "cat": "cpu_op"}
        for name, times in (("a", {"ts": None}), ("b", {"dur": "x"}), ("c", {"dur": -3.5}))
    ]
    rows = rows_of(document(*bad).decode().replace("null", "NaN").encode())
    assert [rows.names[i] for i in rows.operators.name] == ["c"]
    assert rows.operators.duration_ns.tolist() == [0]
    assert [(problem.where, problem.count) for problem in rows.problems] == [
        ("event 0 ('a')", 2), ("event 2 ('c')", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30, 1e40, "x", None, True, [1], {}])
def test_numbers_that_fit_no_column_are_left_out(number):
    rows = rows_of(document(kernel(correlation=number, stream=number, device=3), kernel()))
    found = rows.gpu.correlation.tolist()
    assert found[1] == 1
    assert found[0] == MISSING
    assert rows.gpu.stream[0] == MISSING
    assert len(rows.gpu.start_ns) == 2


def test_a_large_device_or_grid_does_not_wrap_around():
    rows = rows_of(document(kernel(device=2**40, grid=[2**40, 1, 1], block=[1, 2])))
    assert rows.gpu.device[0] == 2**31 - 1
    assert rows.gpu.grid[0].tolist() == [0, 0, 0]
    assert rows.gpu.block[0].tolist() == [0, 0, 0]


def test_bytes_that_are_not_utf8():
    text = document(kernel("gemm?"), operator()).replace(b"gemm?", b"gemm\xff")
    rows = rows_of(text.replace(b'"float"', b'"flo\xfe"'))
    assert rows.names[rows.gpu.name[0]] == "gemm\ufffd"
    assert "\ufffd" in rows.arguments[rows.operators.arguments[0]].dtypes
    assert rows.operators.external_id.tolist() == [9]


def test_nan_among_arguments_costs_nothing():
    text = document(kernel(bytes=7), operator(), call()).replace(b'"correlation": 1', b'"x": NaN')
    rows = rows_of(text)
    assert rows.gpu.bytes.tolist() == [7]
    assert rows.gpu.correlation.tolist() == [MISSING]
    assert rows.operators.external_id.tolist() == [9]
    assert rows.problems == ()


def test_deep_nesting():
    deep = b"[" * 100_000 + b"]" * 100_000
    text = document(kernel("before"), operator("aten::x"), kernel("after"))
    rows = rows_of(text.replace(b"[[2, 3], [3, 4]]", deep))
    assert [rows.names[i] for i in rows.gpu.name] == ["before", "after"]
    assert rows.problems
    unbalanced = rows_of(text.replace(b"[[2, 3], [3, 4]]", b"[" * 1_000_000))
    assert len(unbalanced.gpu.start_ns) >= 1
    assert unbalanced.partial


def test_a_kernel_name_of_a_megabyte():
    long = "k" * 1_000_000
    rows = rows_of(document(kernel(long), kernel(long + "x"), kernel("<script>=1+1</script>")))
    assert len(set(rows.gpu.name.tolist())) == 3
    assert max(map(len, rows.names)) < 20_000
    assert "<script>=1+1</script>" in rows.names


def test_events_of_unusual_types():
    odd = [
        {**kernel(), "name": 7}, {**kernel(), "name": None}, {**kernel(), "cat": 3},
        {**kernel(), "ph": None}, {**kernel(), "args": [1]}, {**kernel(), "args": "x"},
        {**kernel(), "pid": {"a": 1}, "tid": [2]}, [], 5, "x", None, {}, {"ph": 1},
    ]  # fmt: skip
    rows = rows_of(document(*odd, kernel("last")))
    assert rows.names[rows.gpu.name[-1]] == "last"
    assert [rows.names[i] for i in rows.gpu.name[:2]] == ["7", ""]
    assert len(rows.gpu.start_ns) == 6
    assert rows.events >= 8


def test_metadata_of_unusual_types():
    rows = rows_of(
        document(
            kernel(), distributedInfo=[1], deviceProperties={"id": 1}, host_name=3,
            baseTimeNanoseconds="x", trace_id=None,
        )
    )  # fmt: skip
    assert (rows.rank, rows.devices, rows.host, rows.job, rows.base_ns) == (None, {}, None, None, 0)
    assert rows_of(document(kernel(), distributedInfo={"rank": -1})).rank is None


def test_duplicate_correlations_and_events_out_of_order_are_kept_as_they_are():
    rows = rows_of(document(kernel(ts=30), kernel(ts=10), call(ts=5), call(ts=1)))
    assert rows.gpu.start_ns.tolist() == [30000, 10000]
    assert rows.calls.correlation.tolist() == [1, 1]


def test_a_gzip_file_that_ends_early(tmp_path):
    path = tmp_path / "trace.json.gz"
    text = document(*[kernel(f"kernel {i * 7919 % 1000}", i) for i in range(20_000)])
    packed = gzip.compress(text)
    path.write_bytes(packed[: len(packed) // 2])
    with open_decompressed(path) as file:
        rows = read_kineto(file)
    assert rows is not None
    assert 5_000 < len(rows.gpu.start_ns) < 15_000
    assert rows.partial
    assert any("cut short" in problem.what for problem in rows.problems)


def test_a_damaged_tail_is_reported():
    rows = rows_of(document(kernel())[:-1] + b', "traceName": "x')
    assert len(rows.gpu.start_ns) == 1
    assert "after the events is damaged" in rows.problems[0].what


EVENTS = st.lists(
    st.one_of(
        st.builds(kernel, st.text(max_size=8), st.floats(0, 1e12), st.floats(0, 1e6)),
        st.builds(operator, st.sampled_from(['}, {"ph"', "aten::mm", '"}]', "\\"])),
        st.builds(call, st.integers(0, 2**60)),
        st.fixed_dictionaries({"ph": st.sampled_from("XMif"), "cat": st.text(max_size=5)}),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3),
                st.dictionaries(
                    st.sampled_from(["ph", "cat", "name", "ts", "dur", "args", "pid"]), inner
                ),
            ),
            max_leaves=6,
        ),
    ),
    max_size=15,
)


@given(EVENTS, st.integers(1, 4096))
@settings(deadline=None, max_examples=60)
def test_the_rows_do_not_depend_on_the_size_of_a_piece(events, chunk_bytes):
    text = document(*events)
    assert comparable(rows_of(text, chunk_bytes=chunk_bytes)) == comparable(rows_of(text))


@given(EVENTS, st.data())
@settings(deadline=None, max_examples=60)
def test_damage_anywhere_raises_nothing(events, data):
    text = bytearray(document(*events, kernel()))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    rows = read_kineto(io.BytesIO(bytes(text)), chunk_bytes=data.draw(st.integers(1, 2000)))
    if rows is not None:
        assert (rows.gpu.duration_ns >= 0).all()
        assert len(rows.gpu.start_ns) <= rows.events


# Real traces.


@pytest.mark.parametrize("path", KINETO, ids=lambda path: path.name)
def test_real_traces_have_the_events_that_json_finds(path):
    text = gzip.decompress(path.read_bytes())
    events = json.loads(text)["traceEvents"]
    rows = rows_of(text)
    counts = Counter(event.get("cat") for event in events if event.get("ph") == "X")
    assert rows.events == len(events)
    kinds = Counter(rows.gpu.kind.tolist())
    assert kinds[GpuKind.KERNEL] == counts["kernel"] + counts["Kernel"]
    assert kinds[GpuKind.MEMCPY] == counts["gpu_memcpy"] + counts["Memcpy"]
    assert kinds[GpuKind.MEMSET] == counts["gpu_memset"] + counts["Memset"]
    assert len(rows.operators.start_ns) == counts["cpu_op"] + counts["Operator"]
    assert rows.problems == ()
    assert len(rows.gpu.start_ns) > 0
    # A kernel has a grid and a block that a GPU can run, and nearly all have a call.
    kernels = rows.gpu.kind == GpuKind.KERNEL
    assert (rows.gpu.grid[kernels] > 0).all()
    assert (rows.gpu.block[kernels].prod(axis=1) <= 1024).all()
    assert np.isin(rows.gpu.correlation, rows.calls.correlation).mean() > 0.7
    assert comparable(rows) == comparable(rows_of(text, chunk_bytes=1024))


def test_a_rank_of_a_real_job_has_its_place_and_collectives():
    path = SAMPLES / "h200_fsdp_rank1of4_part.pt.trace.json.gz"
    rows = rows_of(gzip.decompress(path.read_bytes()))
    assert (rows.rank, rows.world_size) == (1, 4)
    recorded = [rows.collectives[i] for i in rows.gpu.collective if i >= 0]
    assert {one.operation for one in recorded} == {"_allgather_base"}
    assert {one.dtype for one in recorded} == {"BFloat16"}
    assert all(one.out_elements == 4 * one.in_elements for one in recorded)


def test_a_trace_too_large_for_memory_keeps_what_led_to_work_on_the_gpu(monkeypatch):
    path = SAMPLES / "mi250_minitoy_rocm6.2.json.gz"
    text = gzip.decompress(path.read_bytes())
    whole = rows_of(text)
    monkeypatch.setattr(host_rows, "KEPT_BYTES", 0)
    monkeypatch.setattr(spool.Spool.__init__, "__kwdefaults__", {"most_bytes": 500})
    rows = rows_of(text, chunk_bytes=4096)
    left, right = comparable(rows), comparable(whole)
    for column in left:
        if not column.startswith(("calls.", "operators.")):
            assert left[column] == right[column]
    linked = np.isin(whole.calls.correlation, whole.gpu.correlation)
    assert rows.calls.start_ns.tolist() == whole.calls.start_ns[linked].tolist()
    enclosing = [
        i
        for i, (start, length) in enumerate(
            zip(whole.operators.start_ns, whole.operators.duration_ns, strict=True)
        )
        if any(start <= c <= start + length for c in rows.calls.start_ns)
    ]
    assert set(rows.operators.external_id) >= set(whole.operators.external_id[enclosing])
    left = len(whole.calls.start_ns) + len(whole.operators.start_ns)
    left -= len(rows.calls.start_ns) + len(rows.operators.start_ns)
    assert rows.host_rows_left_out == left > 0


def test_half_a_surrogate_pair_costs_a_character_and_no_event():
    document = rb"""{"traceEvents": [
    {"ph":"X","cat":"kernel","name":"gemm_\ud800","ts":1661938466265087.123,"dur":5,
     "args":{"device":1,"stream":9,"correlation":3,"x":"\udc01"}},
    {"ph":"X","cat":"cpu_op","name":"\udfffmm","ts":1,"dur":2,"pid":"\ud900","tid":1,
     "args":{"Input type":["\ud800"],"Input Dims":[[4]]}}]}"""
    rows = read_kineto(io.BytesIO(document))
    assert rows.names == ("gemm_\ufffd", "\ufffdmm")
    assert rows.gpu.start_ns.tolist() == [1661938466265087123]
    assert (rows.gpu.stream.tolist(), rows.gpu.correlation.tolist()) == ([9], [3])
    assert rows.arguments[0].shapes == "[[4]]"
    assert rows.problems == ()
    assert rows.events == 2
