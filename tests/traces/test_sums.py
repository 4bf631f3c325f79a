from __future__ import annotations

import dataclasses

from gemmetry.domain.tables import Column, Table
from gemmetry.traces.report import ONLY_ON, sum_over_files
from gemmetry.traces.summary import spanned_ns, steps_overlap
from gemmetry.traces.text import steps_text

RANKS = (
    "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz",
    "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz",
)


def _table(name, headings, rows):
    return Table(name, tuple(map(Column, headings)), rows)


def _rows(table):
    return [dict(zip(table.names, row, strict=True)) for row in table.rows]


def test_rows_of_few_files_name_the_files():
    headings = ("file", "name", "Count", "total_direct_kernel_time_ms", "Percentage (%)")
    rows = [("a", "both", 1, 3.0, 50.0), ("b", "both", 1, 3.0, 50.0), ("b", "one", 1, 1.0, 9.0)]
    table = _table("ops_summary", headings, rows)

    def only_on(files):
        return "" if len(files) > 1 else f"only {min(files)}"

    assert [row.get(ONLY_ON) for row in _rows(sum_over_files(table, only_on))] == [None, "only b"]
    assert ONLY_ON not in sum_over_files(table).names


def test_one_file_other_sheets_and_no_time(report_of):
    """What needs no sum is left as it is; a sum of nothing has no share."""
    for sheet in (
        report_of(RANKS[0]).table("ops_summary"),
        report_of(*RANKS).table("gpu_timeline"),
    ):
        assert sum_over_files(sheet) is sheet
    headings = ("file", "op category", "Count", "total_direct_kernel_time_ms", "Percentage (%)")
    rows = [("a", "GEMM", 1, 0.0, None), ("b", "GEMM", 1, 0.0, None)]
    table = _table("ops_summary_by_category", headings, rows)
    assert _rows(sum_over_files(table))[0]["Percentage (%)"] == 0


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
