"""What is read from a file does not depend on where its pieces end, for valid documents with any
content and for damaged ones."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gemmetry.formats.kineto import read_kineto
from gemmetry.formats.rocm.rocprofv3 import read_rocprofv3_json

EVENTS = (
    '{"ph":"X","cat":"kernel","name":"}, {\\"ph\\"","ts":1,"dur":2}',
    '{"ph":"X","cat":"kernel","name":"none","ts":"x","dur":1}',
    '{"ph":"X","cat":"kernel","name":"negative","ts":5,"dur":-1}',
    '{"ph":"X","cat":"cuda_runtime","name":"call","ts":5,"dur":-1}',
    '{"args":{"x":[{"y":"}]"}]},"ph":"X","cat":"cpu_op","name":"\\\\","ts":1.5,"dur":1}',
    '{"ph":"X","cat":"cpu_op","name":"\\"}]","ts":1.5,"dur":1}', '{"ph":"M"}', "{}",
    '{"a":[{},{}]}',
    '{"ts":NaN}', '{"ph":NaN}', '{"name":[1]}', '{"cat":5}', '{"ph":"X","ph":"Y"}', '{"a":[{}]}',
)  # fmt: skip
OTHERS = (
    "[]", "[[]]", "[{}]", "[{},{}]", '[{"ph":"X"}]', "5", "-1", "1e5", "null", "true", "NaN", '"x"',
    '"}"', '"}]"', '"}, {"', '"\\\\"', '"\\""', '"\\\\\\"}, {"', "",
)  # fmt: skip
SEPARATORS = (",", ", ", " , ", ",\n", "  ,\t", ",,", "", " ", "\x0b", ",\x0c", "\r\n,")
HEADS = (
    '{"traceEvents":[', '{"schemaVersion": 1, "traceEvents": [', "[", " [", "\n\n[", "\ufeff[",
    '\ufeff{"traceEvents":[', '{"a":"\\"traceEvents\\": [","traceEvents" : [',
    '{"a":{"traceEvents":[1]},"traceEvents":[', f'{{"traceEvents"{" " * 300}:{" " * 300}[',
    '{"b":[1,{"c":"]"}],"distributedInfo":{"rank":3},"traceEvents":[',
)  # fmt: skip
TAILS = ("]}", "]", '] ,"x":1}', "]\n}\n", '] , "distributedInfo": {"rank": 1}}', "]}]}", "}", "")
DAMAGE = ("{", "}", "[", "]", '"', "\\", ",", '{"a":', '"}', "}]", "x", "\x0b", "\xff", "}}", "]]")

DOCUMENTS = st.builds(
    lambda head, parts, tail: head + "".join(a + b for a, b in parts) + tail,
    st.sampled_from(HEADS),
    st.lists(
        st.tuples(st.sampled_from((*EVENTS, *OTHERS)), st.sampled_from(SEPARATORS)), max_size=12
    ),
    st.sampled_from(TAILS),
)


def everything_read(text: bytes, chunk_bytes: int) -> dict[str, Any] | None:
    """Everything that was read, with texts in place of their numbers, which follow the order of
    reading."""
    rows = read_kineto(io.BytesIO(text), chunk_bytes=chunk_bytes)
    if rows is None:
        return None
    texts = {"name": rows.names, "thread": rows.threads, "arguments": rows.arguments}
    found: dict[str, Any] = {
        "events": rows.events, "partial": rows.partial, "problems": rows.problems,
        "rank": rows.rank,
    }  # fmt: skip
    for table in ("gpu", "calls", "operators", "annotations"):
        columns = getattr(rows, table)
        for column in dataclasses.fields(columns):
            values = getattr(columns, column.name).tolist()
            of = texts.get(column.name)
            found[f"{table}.{column.name}"] = [of[v] for v in values] if of else values
    return found


@given(DOCUMENTS, st.integers(1, 64))
@settings(deadline=None, max_examples=100)
# Characters that are white space for Python but not for JSON.
@example('{"traceEvents": [{"ph":"M"}\x0b{"ph":"M"}, 5]}', 31)
@example('{"traceEvents": [{"ph":"M"} \x0c]}', 1)
# Several values that are not events in one gap, at the ends of pieces of 31 bytes.
@example('{"traceEvents": [{"name":"}, {\\"ph\\""}, 5, "}, {", [{}], {"ph":NaN}, 6, "]"]}', 31)
@example("\ufeff[{}]", 1)
@example('{"traceEvents": [{}] ]', 64)
def test_documents_of_odd_values(text, chunk_bytes):
    content = text.encode()
    assert everything_read(content, chunk_bytes) == everything_read(content, 1 << 20)


@given(DOCUMENTS, st.integers(1, 64), st.data())
@settings(deadline=None, max_examples=100)
def test_damaged_documents(text, chunk_bytes, data):
    content = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content)))
        damage = data.draw(st.sampled_from(DAMAGE)).encode("latin-1")
        content[place : place + data.draw(st.integers(0, 3))] = damage
    content = content[: data.draw(st.integers(0, len(content) * 2))]
    assert everything_read(bytes(content), chunk_bytes) == everything_read(bytes(content), 1 << 20)


@pytest.mark.parametrize("chunk_bytes", range(1, 65))
def test_each_value_that_is_not_an_event_is_reported_at_its_byte(chunk_bytes):
    parts = [
        '{"ph": "M"}',
        "5",
        '{"ph": "M"}',
        '"}, {"',
        "[1]",
        '{"ph": "M"}',
        '{"ph": [1]}',
        "null",
    ]
    text = '{"traceEvents": [' + ", ".join(parts) + "]}"
    rows = read_kineto(io.BytesIO(text.encode()), chunk_bytes=chunk_bytes)
    assert rows is not None
    assert rows.events == len(parts)
    wrong = [text.index(part) for part in ("5", '"}, {"', "[1]", '{"ph": [1]}', "null")]
    lost, *found = rows.problems
    assert lost.count == len(wrong)
    assert [problem.where for problem in found] == [f"byte {place}" for place in wrong]


def test_a_text_like_a_key_is_none_wherever_the_piece_ends():
    """The backslash that distinguishes a quote within a text from that of a key may end a piece."""
    kernels = '{"kernel_dispatch": [{"start_timestamp": 1, "end_timestamp": 2}]}'
    for length in range(200, 330):
        note = "x" * length + '\\"kernel_dispatch\\": [{}'
        text = f'{{"note": "{note}", "rocprofiler-sdk-tool": [{{"buffer_records": {kernels}}}]}}'
        for chunk_bytes in (64, 100, 512):
            rows = read_rocprofv3_json(io.BytesIO(text.encode()), chunk_bytes=chunk_bytes)
            assert rows is not None
            assert (rows.events, len(rows.gpu.start_ns), rows.problems) == (1, 1, ())


@pytest.mark.parametrize("chunk_bytes", [*range(1, 65, 3), 4096])
def test_records_of_rocprofv3_that_are_none(chunk_bytes):
    """Also in arrays of which nothing is kept, and where texts and records share a name."""
    record = '{"start_timestamp": 1, "end_timestamp": 2, "correlation_id": {"internal": 5}}'
    text = (
        '{"rocprofiler-sdk-tool": [{"agents": [], "kernel_symbols": [], "buffer_records": {'
        f'"counter_collection": [{{}}, 5, {{}}, "x", {{}}], "marker_api": [{record}, '
        f'{{"key": 5, "value": "range"}}, {record}], "hip_api": [{record}, 7, {record}]}}}}]}}'
    )
    rows = read_rocprofv3_json(io.BytesIO(text.encode()), chunk_bytes=chunk_bytes)
    assert rows is not None
    assert rows.events == 4 + 3
    assert [rows.names[name] for name in rows.annotations.name] == ["range", "range"]
    assert rows.problems[0].count == 3
    assert [problem.what[-3:] for problem in rows.problems[1:]] == ["'5'", "'x\"'"[-3:], "'7'"]
