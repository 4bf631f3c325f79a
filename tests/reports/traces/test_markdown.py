from __future__ import annotations

from gemmetry.traces.page import trace_markdown


def test_names_are_escaped(hostile_report):
    text = trace_markdown(hostile_report)
    assert "<script" not in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 5000
