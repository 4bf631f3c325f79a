from __future__ import annotations

from gemmetry.reports.trace_markdown import trace_markdown


def test_headings_and_rows_of_a_job(job_report):
    text = trace_markdown(job_report)
    for heading in ("# Traces", "## Time", "## Collectives", "## Ranks"):
        assert f"{heading}\n" in text
    assert "all_gather" in text.replace("\\", "")


def test_names_are_escaped(hostile_report):
    text = trace_markdown(hostile_report)
    assert "<script" not in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 5000
