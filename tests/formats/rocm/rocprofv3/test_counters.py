from __future__ import annotations

from pathlib import Path

from gemmetry.formats.events import MISSING
from gemmetry.formats.rocm.rocprofv3.counters import read_counters, read_kernel_statistics

SAMPLES = Path(__file__).parents[3] / "data" / "traces"


def test_counters_of_two_generations():
    old = list(read_counters(SAMPLES / "sdk2024_counter_collection.csv"))
    new = list(read_counters(SAMPLES / "sdk2025_counter_collection.csv"))
    for rows in (old, new):
        assert rows[0].counter == "SQ_WAVES"
        # The documentation's own sample: one wave of 64 per workgroup of 64.
        assert rows[0].value == rows[0].workgroups == 16384.0
        assert rows[0].workgroup_size == 64
    assert old[0].start_ns == MISSING
    assert new[0].end_ns - new[0].start_ns == 52151


def test_values_that_are_not_numbers_are_left_out(tmp_path):
    path = tmp_path / "counter_collection.csv"
    path.write_text(
        "Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value\n1,gemm.kd,A,x\n2,gemm.kd,A,1e3\n"
    )
    [row] = read_counters(path)
    assert (row.dispatch, row.kernel, row.value, row.workgroups) == (2, "gemm", 1000.0, MISSING)


def test_statistics_of_kernels(tmp_path):
    path = tmp_path / "1_kernel_stats.csv"
    path.write_text(
        '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
        '"gemm.kd",3,300,100.000000,100.00,90,110,10.000000\n'
    )
    [row] = read_kernel_statistics(path)
    assert (row.name, row.calls, row.total_ns, row.min_ns, row.max_ns) == ("gemm", 3, 300, 90, 110)
