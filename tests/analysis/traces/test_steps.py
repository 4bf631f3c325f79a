from __future__ import annotations

import dataclasses

from gemmetry.traces.summary import spanned_ns, steps_overlap
from gemmetry.traces.text import steps_text

RANKS = (
    "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz",
    "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz",
)


def moved(summary, by_ns):
    step = summary.step
    start, end = step.start_ns + by_ns, step.end_ns + by_ns
    return dataclasses.replace(summary, step=dataclasses.replace(step, start_ns=start, end_ns=end))


def test_steps_that_overlap_span_less_than_their_sum(report_of):
    report = report_of(RANKS[0])
    (step,) = report.steps
    half = step.window_ns // 2
    two = [step, moved(step, half)]
    assert spanned_ns(two) == step.window_ns + half
    assert steps_text(report.summaries, two).startswith("windows overlap: ")
    assert steps_overlap(two, 0.01)
    assert not steps_overlap([step, moved(step, step.window_ns)], 0.01)


def test_a_step_overlaps_with_work_that_is_not_its_own(report_of):
    (step,) = report_of(RANKS[0]).steps
    busy = dataclasses.replace(step, others_ns=step.window_ns // 10)
    assert steps_overlap([busy], 0.1 - 1e-6)
    assert not steps_overlap([busy], 0.2)
    assert not steps_overlap([dataclasses.replace(busy, window_ns=0)], 0.0)
