from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.formats.json import Structure

TEXTS = st.text(alphabet='ab"\\{}[],: \n\té', max_size=12)
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=6)


@given(OBJECTS, st.lists(st.integers(1, 40), min_size=1, max_size=8), st.booleans())
@settings(deadline=None, max_examples=100)
def test_finds_each_object_whatever_stands_in_its_texts(objects, sizes, ascii_only):
    parts = [json.dumps(one, ensure_ascii=ascii_only) for one in objects]
    text = (" , ".join(parts) + "]  tail").encode()
    structure = Structure()
    position = 0
    while position < len(text):
        size = sizes[position % len(sizes)]
        structure.feed(text[position : position + size])
        position += size
    assert [json.loads(text[begin:end]) for begin, end in structure.spans] == objects
    assert structure.end == text.rindex(b"]")


def test_reports_what_is_open_at_the_end():
    structure = Structure()
    structure.feed(b'{"a": 1}, {"b": [{"c": "x}')
    assert structure.spans == [(0, 8)]
    assert (structure.depth, structure.begin, structure.in_string) == (3, 10, True)
    assert structure.end is None


def test_a_backslash_at_the_end_of_a_piece_counts_for_the_next_one():
    for text in (rb'{"a": "\\\\"}', rb'{"a": "\\\""}', rb'{"a": "\"}"}'):
        whole = Structure()
        whole.feed(text)
        for cut in range(1, len(text)):
            parts = Structure()
            parts.feed(text[:cut])
            parts.feed(text[cut:])
            assert parts.spans == whole.spans == [(0, len(text))], (text, cut)
