"""What is shown of traces: golden outputs of pages and Markdown, one file for each report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmetry.documents.tracelens_workbooks import TraceLensSheets
from gemmetry.traces.page import page_tables, trace_markdown, trace_page
from gemmetry.traces.reading import read_all
from gemmetry.traces.report import build_report

DATA = Path(__file__).parents[1] / "data"
CASES = {
    "incomplete": ["collectives/hta_2of128"],
    "matmul": ["traces/h200_matmul.pt.trace.json.gz"],
    "two_jobs": ["collectives/h200x4", "collectives/hta_2of128"],
    "mixed": ["cpu_grid", "traces/h200_matmul.pt.trace.json.gz",
              "traces/v100_resnet50_2021_part.json.gz"],
    "nothing": [],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_report(case, page_text, golden, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").symlink_to(DATA)  # Texts do not depend on the length of its path.
    errors = {}
    traces = read_all([Path("data", one) for one in CASES[case]], errors, use_cache=False)
    report = build_report(traces, errors, sheets=TraceLensSheets(), with_lanes=True)
    page = trace_page(report, command="gemmetry trace report '<b>' -o x.html",
                      created="2026-11-22T04:00:00+00:00")  # fmt: skip
    titles = re.findall(r'<th[^>]* title="([^"]*)"', page)
    text = "\f\n".join([page_text(page), "\n".join(dict.fromkeys(titles)), trace_markdown(report)])
    for long, short in ((str(DATA), "{data}"), (str(tmp_path), "{here}")):
        text = text.replace(long, short).replace(long.replace("_", "\\_"), short)
    golden(f"traces_{case}", text)


def test_names_are_short_and_escaped(hostile_report):
    for table in page_tables(hostile_report):
        assert all(len(cell["text"]) <= 120 and len(cell["title"]) <= 32_767
                   for row in table["rows"] for cell in row)  # fmt: skip
    text = trace_markdown(hostile_report)
    assert "<script" not in text and "\x1b" not in text
    assert max(map(len, text.splitlines())) < 5000
    assert len(trace_page(hostile_report)) < 1_000_000
