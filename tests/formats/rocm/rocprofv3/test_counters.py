from __future__ import annotations

from pathlib import Path

from gemmetry.formats.events import MISSING
from gemmetry.formats.rocm.rocprofv3 import read_counted

SAMPLES = Path(__file__).parents[3] / "data" / "traces"


def test_counters_of_two_generations():
    old = read_counted(SAMPLES / "sdk2024_counter_collection.csv", "csv")[0]
    new = read_counted(SAMPLES / "sdk2025_counter_collection.csv", "csv")[0]
    for process in (old, new):
        first = process.dispatches[0]
        # The documentation's own sample: one wave of 64 per workgroup of 64.
        assert first.values == {"SQ_WAVES": 16384.0}
        assert (first.workgroups, first.workgroup_size) == (16384, 64)
        assert process.has_counters
    assert (old.pid, new.pid) == (19396, 15606)
    assert old.dispatches[0].duration_ns is None
    assert new.dispatches[0].duration_ns == 52151
    assert (old.dispatches[0].accum_vgprs, new.dispatches[0].accum_vgprs) == (MISSING, 0)


def test_counters_with_the_gpus_of_the_node():
    found = read_counted(SAMPLES / "hk_b64_bank_test_counter_collection.csv", "csv")[0]
    assert len(found.gpus) == 8
    assert found.gpus[0].chip == "gfx950"
    assert (found.gpus[0].units, found.gpus[0].simds, found.gpus[0].xccs) == (256, 1024, 8)
    last = found.dispatches[-1]
    assert (last.kernel, last.device) == ("micro_tk(micro_globals)", 0)
    assert last.values == {"SQ_INSTS_LDS": 1.0, "SQ_LDS_BANK_CONFLICT": 0.0}


def test_a_trace_has_dispatches_without_counters(tmp_path):
    for name in ("sdk2024", "sdk2026"):
        text = (SAMPLES / f"{name}_kernel_trace.csv").read_bytes()
        (tmp_path / f"{name}_kernel_trace.csv").write_bytes(text)
        found = read_counted(tmp_path / f"{name}_kernel_trace.csv", "csv")[0]
        assert found.dispatches and not found.has_counters
        # 1024 x 1024 work-items in groups of 64.
        assert found.dispatches[0].workgroups == 16384
        assert found.dispatches[0].duration_ns > 0


def test_values_that_are_not_numbers_are_left_out(tmp_path):
    path = tmp_path / "counter_collection.csv"
    path.write_text(
        "Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value\n1,gemm.kd,A,x\n2,gemm.kd,A,1e3\n"
        "2,gemm.kd,A,1\n"
    )
    first, second = read_counted(path, "csv")[0].dispatches
    assert first.values == {}
    # Rows of several instances of a counter.
    assert (second.number, second.kernel, second.values) == (2, "gemm", {"A": 1001.0})
    assert (second.workgroups, second.device) == (MISSING, MISSING)
