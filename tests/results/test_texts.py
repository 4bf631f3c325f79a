from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.results.pages import embed_json, page_templates, template_text
from gemmetry.results.texts import cell_fit, cut, elide, first_line, fitted, printable


def test_first_line_skips_blank_ones_and_ends():
    assert first_line("\n  \n  cause \n more") == "cause"
    assert first_line("") == ""
    assert first_line("x" * 300, limit=10) == "x" * 9 + "…"


def test_names_that_differ_at_an_end_still_do_when_they_are_shortened():
    names = [f"nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_{layout}" for layout in ("NTT", "NNT")]
    short = [elide(name, 37) for name in names]
    assert short[0] == "nvjet_sm90_tst_320x128_6…bz_coopB_NTT"
    assert len(set(short)) == 2
    assert max(map(len, short)) <= 37
    assert elide("short", 5) == "short"
    assert [elide("abcdef", width) for width in (2, 3, 4)] == ["a…", "a…f", "ab…f"]


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=60))
def test_printable_keeps_lines_and_drops_what_terminals_obey(text):
    clean = printable(text)
    assert not set(clean) & {"\x1b", "\x07", "\x08", "\x9b", "\r", "\u202e", "\u2028"}
    assert printable(clean) == clean
    for mark in "\u061c\u200e\u200f\u202e\u2066\x9b":  # Of direction, and a control.
        assert printable(f"a{mark}b") == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize("text", ["x" * 100_000, "𝕏" * 40_000, "é𝕏" * 20_000, "\ud800" * 40_000])
def test_texts_are_cut_to_what_a_cell_takes(text):
    units = len(cell_fit(text).encode("utf-16-le")) // 2
    assert 32_765 <= units <= 32_767
    assert text.replace("\ud800", "\N{REPLACEMENT CHARACTER}").startswith(cell_fit(text))
    # A cell holds nothing that XML cannot.
    assert cell_fit("a\x1bb\uffff\ud800") == "a\ufffdb\ufffd\ufffd"
    assert cell_fit("short é 𝕏") == "short é 𝕏"


def test_cut():
    assert [cut(text, 4) for text in ("a\nb", "abcdef")] == ["a b", "abc…"]
    assert "\x1b" not in cut("\x1b[31m", 4)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text("abc.,", min_size=1, max_size=9), max_size=20), st.integers(12, 60))
def test_a_fitted_text_ends_with_a_whole_word(words, width):
    text = " ".join(words)
    line = fitted(text, width)
    assert len(line) <= width
    if len(text) <= width:
        assert line == text
    elif "…" not in line[:-1]:  # Nothing but the end of what has no words that fit is left out.
        kept = line.removesuffix("…").split()
        assert [one.rstrip(".,;:(") for one in kept] == [
            one.rstrip(".,;:(") for one in text.split()[: len(kept)]
        ]


@settings(deadline=None, max_examples=100)
@given(st.recursive(st.text() | st.integers() | st.none(), lambda c: st.lists(c), max_leaves=8))
def test_embedded_json_cannot_leave_its_element(value):
    text = embed_json(value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value


def test_templates_escape_what_they_are_given():
    templates = page_templates()
    assert templates.from_string("{{ x }}").render(x="<b>") == "&lt;b&gt;"
    assert "{{" not in template_text("timeline.js").replace("${", "")
