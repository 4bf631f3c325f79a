from __future__ import annotations

import re

from gemmetry.traces.page import trace_markdown
from gemmetry.traces.text import ABOUT_BOUNDS, ABOUT_STEPS


def test_headings_and_rows_of_a_job(job_report):
    text = trace_markdown(job_report)
    for heading in (
        "# Traces",
        "## Time",
        "## Collectives by kind",
        "## Ranks: who came last, who waited",
    ):
        assert f"\n{heading}" in f"\n{text}"
    assert "all_gather" in text.replace("\\", "")


def test_bounds_are_marked_as_on_the_page(report_of, job_report):
    part = trace_markdown(report_of("collectives/hta_2of128"))
    assert f"## Collectives by kind\n\n{ABOUT_BOUNDS}\n\n" in part
    assert "| ≤ 52,330 | 688 | 52,454 | ≥ 21.27 | ≥ 20.9 |" in part
    whole = trace_markdown(job_report)
    assert "≤" not in whole and "≥" not in whole


def test_steps_have_their_mark_and_window_and_what_these_are(report_of):
    text = trace_markdown(report_of("traces/h200_fsdp_rank0of4_part.pt.trace.json.gz"))
    steps = text.partition("## Steps\n")[2]
    assert "Windows: 18.342 of the trace's 22.937 ms" in steps
    assert f"{ABOUT_STEPS[1:]}." in steps
    assert re.search(r"\| 3 \| 32 \| 64,912 \| 18,342 \|", steps)


def test_names_are_escaped(hostile_report):
    text = trace_markdown(hostile_report)
    assert "<script" not in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 5000


def test_a_trace_of_a_cpu_has_its_products_and_operators(report_of):
    text = trace_markdown(report_of("cpu_grid"))
    assert "## Time\n" not in text
    assert "| aten::mm | 256 | 256 | 256 | 1 | f32 | tn | 2 |" in text
    assert "| aten::transpose | 256x256 f32, Scalar, Scalar |" in text
    assert "none of 3 traces has work on a GPU" in text
