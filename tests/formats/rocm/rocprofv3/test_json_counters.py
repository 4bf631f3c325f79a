from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.formats.rocm.rocprofv3 import read_counted

SAMPLES = Path(__file__).parents[3] / "data" / "traces"
COUNTERS = ("SQ_WAVES", "GRBM_GUI_ACTIVE")


def test_records_of_instances_are_added_up(rocprofv3, tmp_path):
    path = tmp_path / "12_results.json"
    rocprofv3.write_json(path, rocprofv3.results_json(12, COUNTERS, rank=3))
    [process] = read_counted(path, "json")
    assert (process.pid, process.rank, process.rank_source) == (12, 3, "environment")
    assert (process.host, process.problems) == ("node-7", [])
    [dispatch] = process.dispatches
    assert dispatch.values == pytest.approx({name: rocprofv3.VALUES[name] for name in COUNTERS})
    assert (dispatch.kernel, dispatch.device) == (rocprofv3.GEMM, 0)
    assert (dispatch.workgroups, dispatch.workgroup_size) == (256, 256)
    assert (dispatch.vgprs, dispatch.accum_vgprs, dispatch.lds_bytes) == (128, 64, 65536)
    assert (process.gpus[0].units, process.gpus[0].xccs) == (304, 8)


def test_several_processes_and_one_without_counters(rocprofv3, tmp_path):
    path = tmp_path / "results.json"
    made = (rocprofv3.results_json(1, ()), rocprofv3.results_json(2, COUNTERS))
    rocprofv3.write_json(path, *made)
    first, second = read_counted(path, "json")
    assert (first.pid, first.has_counters, first.dispatches[0].duration_ns) == (1, False, 500)
    assert (second.pid, second.has_counters) == (2, True)


@pytest.mark.parametrize(
    ("command", "rank"),
    [
        ("train.py --rank=5", 5),
        ("train.py --rank 12 --x", 12),
        ("train.py --node-rank 1", None),
        ("train.py", None),
    ],
)
def test_the_rank_of_a_command_line(command, rank, rocprofv3, tmp_path):
    path = tmp_path / "results.json"
    rocprofv3.write_json(path, rocprofv3.results_json(1, COUNTERS, command=command))
    [process] = read_counted(path, "json")
    assert process.rank == rank
    assert process.rank_source == ("" if rank is None else "command line")


def test_a_recorded_trace():
    [process] = read_counted(SAMPLES / "mi350x_908_part_results.json.gz", "json")
    assert process.pid == 908
    assert process.gpus[0].chip == "gfx950"
    assert process.dispatches and not process.has_counters
    assert all(one.vgprs > 0 for one in process.dispatches)
    assert process.rank is None


def test_a_half_written_file(rocprofv3, tmp_path):
    path = tmp_path / "results.json"
    rocprofv3.write_json(path, rocprofv3.results_json(1, COUNTERS))
    path.write_text(path.read_text()[:-600])
    [process] = read_counted(path, "json")
    assert process.problems
    path.write_text("[1, 2]")
    assert read_counted(path, "json") == []
