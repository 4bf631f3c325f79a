"""Kineto traces: real ones, odd and damaged ones in pieces of any size; small documents are in
``test_golden``."""

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
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gemmetry.formats.events import MISSING, GpuKind, TraceRows
from gemmetry.formats.kineto import read_kineto
from gemmetry.formats.rocm.rocprofv3 import read_rocprofv3_json

SAMPLES = Path(__file__).parents[1] / "data" / "traces"
KINETO = sorted(
    {*SAMPLES.glob("*.json.gz")} - {*SAMPLES.glob("chakra*")} - {*SAMPLES.glob("*_et_*")}
    - {*SAMPLES.glob("*_results.json.gz")}
)  # fmt: skip


ODD = json.loads(Path(__file__).with_name("odd_documents.json").read_text("utf-8"))
"""Events, other values, and what may stand between them and around them."""
DOCUMENTS = st.builds(
    lambda head, parts, tail: head + "".join(a + b for a, b in parts) + tail,
    st.sampled_from(ODD["heads"]),
    st.lists(
        st.tuples(
            st.sampled_from([*ODD["events"], *ODD["others"]]), st.sampled_from(ODD["separators"])
        ),
        max_size=12,
    ),
    st.sampled_from(ODD["tails"]),
)


def rows_of(text: bytes, **options: Any) -> TraceRows:
    rows = read_kineto(io.BytesIO(text), **options)
    assert rows is not None
    return rows


def comparable(rows: TraceRows) -> dict[str, Any]:
    """Everything that was read, with texts in place of their numbers, which follow the order of
    reading."""
    found: dict[str, Any] = {
        name: getattr(rows, name) for name in ("events", "partial", "problems", "rank")
    }
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


def everything_read(text: bytes, chunk_bytes: int) -> dict[str, Any] | None:
    """Everything that was read."""
    rows = read_kineto(io.BytesIO(text), chunk_bytes=chunk_bytes)
    assert rows is None or (rows.gpu.duration_ns >= 0).all()
    assert rows is None or len(rows.gpu.start_ns) <= rows.events
    return None if rows is None else comparable(rows)


@given(DOCUMENTS, st.integers(1, 64))
@settings(deadline=None, max_examples=100)
# Characters that are white space for Python but not for JSON.
@example('{"traceEvents": [{"ph":"M"}\x0b{"ph":"M"}, 5]}', 31)
@example('{"traceEvents": [{"ph":"M"} \x0c]}', 1)
# Several values that are not events in one gap, at the ends of pieces of 31 bytes.
@example('{"traceEvents": [{"name":"}, {\\"ph\\""}, 5, "}, {", [{}], {"ph":NaN}, 6, "]"]}', 31)
@example("\ufeff[{}]", 1)
@example('{"traceEvents": [{}] ]', 64)
# An array that is cut short where another document begins, with a quote too few before it.
@example('[schemaVersion": 1, "traceEvents": [{"ph":"X","name":"}, {\\"ph\\"","ts":1},]', 1)
def test_documents_of_odd_values(text, chunk_bytes):
    content = text.encode()
    assert everything_read(content, chunk_bytes) == everything_read(content, 1 << 20)


@given(DOCUMENTS, st.integers(1, 64), st.data())
@settings(deadline=None, max_examples=100)
def test_damaged_documents(text, chunk_bytes, data):
    content = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content)))
        damage = data.draw(st.sampled_from(ODD["damage"])).encode("latin-1")
        content[place : place + data.draw(st.integers(0, 3))] = damage
    content = content[: data.draw(st.integers(0, len(content) * 2))]
    assert everything_read(bytes(content), chunk_bytes) == everything_read(bytes(content), 1 << 20)


def test_a_text_like_a_key_is_none_wherever_the_piece_ends():
    """The backslash that distinguishes a quote within a text from that of a key may end a piece."""
    kernels = '{"kernel_dispatch": [{"start_timestamp": 1, "end_timestamp": 2}]}'
    for length in range(200, 330, 3):
        note = "x" * length + '\\"kernel_dispatch\\": [{}'
        text = f'{{"note": "{note}", "rocprofiler-sdk-tool": [{{"buffer_records": {kernels}}}]}}'
        for chunk_bytes in (64, 100, 512):
            rows = read_rocprofv3_json(io.BytesIO(text.encode()), chunk_bytes=chunk_bytes)
            assert rows is not None
            assert (rows.events, len(rows.gpu.start_ns), rows.problems) == (1, 1, ())


def document(*events: Any) -> bytes:
    return json.dumps({"traceEvents": list(events)}).encode()


def kernel(name: str = "gemm", **args: Any) -> dict[str, Any]:
    recorded = {"device": 0, "stream": 7, "correlation": 1, "grid": [1, 2, 3], "block": [4, 5, 6]}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 10, "dur": 5,
            "args": recorded | args}  # fmt: skip


def test_collectives_with_equal_metadata_are_stored_once():
    recorded = {"Collective name": "_allgather_base", "Process Group Ranks": "[0, 1, 2, 3]"}
    rows = rows_of(document(*[kernel(f"nccl {i}", **recorded) for i in range(50)], kernel()))
    assert rows.gpu.collective.tolist() == [0] * 50 + [MISSING]
    [one] = rows.collectives
    assert (one.operation, one.group_ranks) == ("_allgather_base", (0, 1, 2, 3))


def test_deep_nesting():
    text = document(kernel("before"), kernel("odd", bytes="DEEP"), kernel("after"))
    rows = rows_of(text.replace(b'"DEEP"', b"[" * 100_000 + b"]" * 100_000))
    assert [rows.names[i] for i in rows.gpu.name] == ["before", "after"]
    assert rows.problems
    unbalanced = rows_of(text.replace(b'"DEEP"', b"[" * 1_000_000))
    assert len(unbalanced.gpu.start_ns) >= 1
    assert unbalanced.partial


@pytest.mark.parametrize("path", KINETO, ids=lambda path: path.name)
def test_real_traces_have_the_events_that_json_finds(path):
    """Work on GPUs is compared in ``traces/test_real_traces``."""
    text = gzip.decompress(path.read_bytes())
    events = json.loads(text)["traceEvents"]
    rows = rows_of(text)
    counts = Counter(event.get("cat") for event in events if event.get("ph") == "X")
    assert rows.events == len(events)
    assert len(rows.operators.start_ns) == counts["cpu_op"] + counts["Operator"]
    # A kernel has a grid and a block that a GPU can run, and nearly all have a call.
    kernels = rows.gpu.kind == GpuKind.KERNEL
    assert (rows.gpu.grid[kernels] > 0).all()
    assert (rows.gpu.block[kernels].prod(axis=1) <= 1024).all()
    assert np.isin(rows.gpu.correlation, rows.calls.correlation).mean() > 0.7
    assert comparable(rows) == comparable(rows_of(text, chunk_bytes=1024))
