from __future__ import annotations

import pytest

from gemmetry.domain.tables import Column, Table
from gemmetry.traces.report import ONLY_ON, sum_over_files

RANKS = (
    "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz",
    "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz",
)


def _table(name, headings, rows):
    return Table(name, tuple(map(Column, headings)), rows)


def _rows(table):
    return [dict(zip(table.names, row, strict=True)) for row in table.rows]


def test_kernels_of_several_files_keep_their_mean():
    headings = (
        "file", "Parent op category", "Parent cpu_op", "Kernel name", "Kernel stream",
        "Kernel duration (µs)_sum", "Kernel duration (µs)_count", "Kernel duration (µs)_mean",
        "Percent of kernels time (%)",
    )  # fmt: skip
    rows = [("a", "GEMM", "aten::mm", "k", 7, 30.0, 3, 10.0, 100.0),
            ("b", "GEMM", "aten::mm", "k", 9, 70.0, 2, 35.0, 50.0),
            ("b", None, None, "k", 9, 70.0, 1, 70.0, 50.0)]  # fmt: skip
    first, second = _rows(sum_over_files(_table("kernel_summary", headings, rows)))
    assert first == {
        "Parent op category": "GEMM", "Parent cpu_op": "aten::mm", "Kernel name": "k",
        "Kernel duration (µs)_count": 5, "Kernel duration (µs)_sum": 100.0,
        "Percent of kernels time (%)": pytest.approx(100 * 100 / 170),
        "Kernel duration (µs)_mean": 20.0,
    }  # fmt: skip
    assert second["Parent cpu_op"] is None


def test_rows_of_few_files_name_the_files():
    headings = ("file", "name", "Count", "total_direct_kernel_time_ms", "Percentage (%)")
    rows = [("a", "both", 1, 3.0, 50.0), ("b", "both", 1, 3.0, 50.0), ("b", "one", 1, 1.0, 9.0)]
    table = _table("ops_summary", headings, rows)

    def only_on(files):
        return "" if len(files) > 1 else f"only {min(files)}"

    assert [row.get(ONLY_ON) for row in _rows(sum_over_files(table, only_on))] == [None, "only b"]
    assert ONLY_ON not in sum_over_files(table).names


def test_no_time_at_all_causes_no_division_by_zero():
    table = _table("ops_summary_by_category",
                   ("file", "op category", "Count", "total_direct_kernel_time_ms",
                    "Percentage (%)"),
                   [("a", "GEMM", 1, 0.0, None), ("b", "GEMM", 1, 0.0, None)])  # fmt: skip
    assert _rows(sum_over_files(table))[0]["Percentage (%)"] == 0


@pytest.mark.parametrize("name", ["ops_summary", "kernel_summary", "gpu_timeline"])
def test_one_file_and_other_sheets_are_left_as_they_are(report_of, name):
    one = report_of(RANKS[0]).table(name)
    assert sum_over_files(one) is one
    other = report_of(*RANKS).table("gpu_timeline")
    assert sum_over_files(other) is other
