from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.formats import json as json_array
from gemmetry.formats.events import ProblemKind
from gemmetry.formats.json import ArrayReader, Structure, outer_object

HOSTILE = '}, {"ph": "X", "name": "}]", \\" }]} ] }'
NAMES = st.one_of(
    st.text(alphabet='ab"\\{}[],: \n', max_size=30),
    st.sampled_from(['}, {"ph"', "}]", "}]}", '"}', '\\"}, {\\"', HOSTILE, HOSTILE * 40]),
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES},
        optional={"args": st.lists(st.fixed_dictionaries({"y": NAMES}), max_size=3)},
    ),
    max_size=12,
)


def read(
    text: str | bytes, chunk_bytes: int = 1024, stream: type[io.BytesIO] = io.BytesIO
) -> tuple[list[Any], ArrayReader[Any]]:
    content = text.encode() if isinstance(text, str) else text
    reader: ArrayReader[Any] = ArrayReader(
        stream(content), "events", msgspec.json.Decoder(list[dict]).decode,
        lambda text: f"left out: {text[:20]!r}", chunk_bytes=chunk_bytes,
    )  # fmt: skip
    return [event for piece in reader for event in piece], reader


@given(EVENTS, st.integers(1, 5000), st.sampled_from([None, 1, 2]), st.booleans())
@settings(deadline=None, max_examples=80)
def test_gives_the_same_events_whatever_the_size_of_a_piece(events, chunk_bytes, indent, is_bare):
    document = events if is_bare else {"before": HOSTILE, "events": events, "after": [{"a": 1}]}
    text = json.dumps(document, indent=indent).encode()
    found, reader = read(text, chunk_bytes)
    assert found == events
    assert not reader.text.is_partial
    assert reader.text.problems == []
    if not is_bare:
        outer, damaged = outer_object(reader.head, reader.tail, ("before", "after", "none"))
        assert (outer, damaged) == ({"before": HOSTILE, "after": [{"a": 1}]}, [])


@given(EVENTS.filter(bool), st.data())
@settings(deadline=None, max_examples=80)
def test_of_a_file_that_ends_anywhere_the_complete_events_are_read(events, data):
    text = json.dumps({"head": 1, "events": events}).encode()
    cut = data.draw(st.integers(len(b'{"head": 1, "events": ['), len(text) - 3))
    found, reader = read(text[:cut], data.draw(st.integers(1, 3000)))
    assert reader.text.is_partial
    assert reader.text.problems
    complete = [e for e in found if "name" in e]
    assert complete == events[: len(complete)]
    # At most the event in which the file ends is missing.
    ends = []
    position = text.index(b"[") + 1
    for event in events:
        position = text.index(json.dumps(event).encode(), position) + len(json.dumps(event))
        ends.append(position)
    assert len(complete) >= sum(end <= cut for end in ends)


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["", "]", ",]", " \n ] }", "],"])
def test_arrays_begin_and_end_in_many_ways(start, end):
    found, _ = read(f'{start}{{"events": [{{"a": 1}}, {{"a": 2}}{end}'.encode())
    assert found == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("text", [b"", b"{}", b"null", b'{"other": [1]}', b'{"a": {"events": []}}'])
def test_a_document_without_the_array(text):
    found, reader = read(text)
    assert found == []
    assert not reader.found


def test_the_key_within_a_text_or_an_inner_object_is_not_taken_for_it():
    inner = {"note": '"events": [{"a": 0}]', "inner": {"events": [{"a": 1}]}}
    found, reader = read(json.dumps({**inner, "events": [{"a": 2}]}).encode())
    assert found == [{"a": 2}]
    assert outer_object(reader.head, reader.tail, inner)[0] == inner


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"events": [{"a": 1}}, {"a": 2}]}', "never opened"),
        (b'{"events": [{"a": 1}, {"b": "' + b"x" * (1 << 20) + b'"}, {"a": 2}]}', "no end"),
        (b'{"events": [{"a": 1},' + b" " * (1 << 20) + b'{"a": 2}]}', "white space"),
    ],
    ids=["an extra brace", "an object without an end", "white space without an end"],
)
def test_what_has_no_end_does_not_fill_the_memory(monkeypatch, text, problem):
    monkeypatch.setattr(json_array, "MOST_OBJECT_BYTES", 1 << 16)
    found, reader = read(text)
    assert found[0] == {"a": 1}
    assert ({"a": 2} in found) == (problem == "never opened")
    assert reader.text.is_partial
    assert problem in reader.text.problems[0].what


def test_the_number_of_problems_kept_is_bounded():
    _, reader = read(b'{"events": [' + b", ".join([b'{"a": bad}'] * 500) + b"]}")
    assert reader.text.left_out == 500
    lost, *kept, more = reader.text.all_problems()
    assert (lost.kind, lost.count) == (ProblemKind.LOST_EVENTS, 500)
    assert len(kept) == json_array.MOST_PROBLEMS
    assert more.count == 400


@pytest.mark.parametrize("bad", ['{"name": bad}', '{"name": "a "b" c"}', '{"name": "a "b c"}'])
@pytest.mark.parametrize("every", [1, 2, 7])
def test_lost_objects_are_counted_and_take_no_others_with_them(bad, every):
    """With quotes that are not escaped: an even number leaves the nesting visible, an odd one hides
    everything up to the next."""
    parts, good = [], []
    for _ in range(60):
        more = [
            {"name": f"event {len(good) + i}", "args": {"list": [{"a": 1}, {"b": 2}]}}
            for i in range(every)
        ]
        parts += [bad, *map(json.dumps, more)]
        good += more
    text = '{"events": [' + ", ".join(parts) + "]}"
    found, reader = read(text)
    assert found == good
    assert reader.text.left_out == 60
    assert reader.text.is_partial
    assert reader.text.problems[0].where == f"byte {text.index(bad)}"


@pytest.mark.parametrize(
    ("rest", "count"), [('{"events": []}', 1), ("[1]{}\n{", 3), ('\n{"events": [{"a": 1}', 1)]
)
@pytest.mark.parametrize("whole", ['{"events": [{"a": 1}], "b": 2}', '[{"a": 1}]'])
def test_documents_after_the_first_are_named_and_not_read(whole, rest, count):
    found, reader = read(whole + rest)
    assert found == [{"a": 1}]
    [problem] = reader.text.all_problems()
    assert (problem.kind, problem.count) == (ProblemKind.SECOND_DOCUMENT, count)
    assert problem.where == f"byte {len(whole) + len(rest) - len(rest.lstrip())}"
    assert reader.text.is_partial


@given(st.integers(20, 400))
@settings(deadline=None, max_examples=60)
def test_a_document_that_is_cut_short_before_another_one(cut):
    """Nothing of the second counts as the first's."""
    events = [{"name": f"event {i}", "x": [i]} for i in range(12)]
    whole = json.dumps({"devices": [{"id": 0}, {"id": 1}], "events": events, "b": {"c": [1]}})
    first = whole[: min(max(cut, whole.index('[{"name') + 1), len(whole) - 1)]
    other = json.dumps({"devices": [{"id": 0}, {"id": 1}], "events": [{"name": "other"}] * 3})
    found, reader = read(first + "\n" + other)
    names = [event["name"] for event in found if "name" in event]
    assert names == [event["name"] for event in events[: len(names)]]
    assert reader.text.is_partial
    kinds = [problem.kind for problem in reader.text.all_problems()]
    assert ProblemKind.SECOND_DOCUMENT in kinds


def test_other_text_after_the_document_is_named():
    _, reader = read(b'{"events": [{"a": 1}]} and so on')
    [problem] = reader.text.all_problems()
    assert problem.where == "byte 23"
    assert not reader.text.is_partial
    assert read(b'{"events": [{"a": 1}]}\n\0\0\0')[1].text.all_problems() == ()


def test_a_stream_that_fails_keeps_what_came_before():
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if part := super().read(size):
                return part
            raise OSError("damaged")

    found, reader = read('{"events": [{"a": 1}, {"a": 2}, {"a"', 64, Failing)
    assert found == [{"a": 1}, {"a": 2}]
    assert "damaged" in reader.text.problems[0].what
    assert reader.text.is_partial


def test_many_objects_without_an_end_do_not_take_forever():
    found, reader = read(b'{"events": [{"a": 1}, ' + b'{"b": [}, ' * 5000 + b'{"a": 2}]}')
    assert found == [{"a": 1}]
    assert reader.text.is_partial
    assert "too many places" in reader.text.problems[-1].what
    assert reader.text.left_out == json_array.MOST_BREAKS


def test_the_damaged_half_of_the_document_is_named():
    def outer(head: bytes, tail: bytes) -> Any:
        return outer_object(head, tail, ("a", "b"))

    assert outer(b'{"a": 1, "c": 3', b', "b": 2}') == ({"a": 1, "b": 2}, [])
    assert outer(b'{"a": 1', b', "b": ') == ({"a": 1}, ["after"])
    assert outer(b'{"a": ', b"}") == ({}, ["before"])
    assert outer(b'{"a": NaN', b"}") == ({"a": "NaN"}, [])
    assert outer(b'{"a": "\xff"', b"}") == ({"a": "\ufffd"}, [])
    assert outer(b"", b"") == ({}, [])


def test_a_backslash_at_the_end_of_a_piece_counts_for_the_next_one():
    for text in (rb'{"a": "\\\\"}', rb'{"a": "\\\""}', rb'{"a": "\"}"}'):
        whole = Structure()
        whole.feed(text)
        for cut in range(1, len(text)):
            parts = Structure()
            parts.feed(text[:cut])
            parts.feed(text[cut:])
            assert parts.spans == whole.spans == [(0, len(text))], (text, cut)
