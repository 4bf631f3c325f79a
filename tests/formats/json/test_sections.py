from __future__ import annotations

import io
import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.formats.json import SectionReader, closed

RECORDS = st.lists(st.fixed_dictionaries({"n": st.integers(0, 9), "t": st.text(max_size=9)}))


def reader_of(text: bytes, chunk_bytes: int) -> SectionReader:
    decode = msgspec.json.Decoder(list[dict]).decode
    pair = (decode, lambda text: f"left out {text!r}")
    return SectionReader(io.BytesIO(text), {"a": pair, "b": pair}, "again", chunk_bytes=chunk_bytes)


@given(st.lists(st.tuples(RECORDS, RECORDS), max_size=3), st.integers(1, 2000))
@settings(deadline=None, max_examples=40)
def test_gives_nested_arrays_and_keeps_what_is_around_them(processes, chunk_bytes):
    document = {
        "tool": [
            {"meta": {"text": '"a": ['}, "names": ["x"], "in": {"a": a, "b": b, "c": [{"a": 1}]}}
            for a, b in processes
        ]
    }
    reader = reader_of(json.dumps(document).encode(), chunk_bytes)
    found: list[tuple[str, list[dict]]] = []
    for key, records in reader:
        if not records:
            found.append((key, []))
        else:
            assert found[-1][0] == key
            found[-1][1].extend(records)
    assert found == [pair for a, b in processes for pair in (("a", a), ("b", b))]
    for process in document["tool"]:
        process["in"] |= {"a": [], "b": []}
    assert json.loads(reader.frame) == document
    assert not reader.text.is_partial


def test_a_file_that_ends_within_an_array():
    text = json.dumps({"m": {"k": 1}, "in": {"a": [{"n": 1}, {"n": 2}]}}).encode()
    reader = reader_of(text[:-7], 64)
    assert [record for _, records in reader for record in records] == [{"n": 1}]
    assert json.loads(reader.frame) == {"m": {"k": 1}, "in": {"a": []}}
    assert reader.text.is_partial


def test_the_beginning_of_any_document_is_closed():
    text = json.dumps({"a": {"b": [1, {"c": 'x"}\\'}], "d": "e"}, "f": {"g": "h,"}}).encode()
    for end in range(1, len(text) + 1):
        json.loads(closed(text[:end]))
    assert closed(text) == text
    assert json.loads(closed(b'{"a": {"b": 1, "c": {"d": [1, 2')) == {
        "a": {"b": 1, "c": {"d": [1]}}
    }
