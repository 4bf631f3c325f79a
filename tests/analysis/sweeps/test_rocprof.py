from __future__ import annotations

import pytest

from gemmetry.sweeps.rocprof import TraceProcess, read_point_rocprof

UTILIZATION = ("GRBM_GUI_ACTIVE", "SQ_BUSY_CU_CYCLES", "SQ_VALU_MFMA_BUSY_CYCLES")


@pytest.fixture
def gemm(tmp_path, rocprofv3):
    """The rows of the GEMM in the files, and the problems."""

    def read(*traces):
        found = read_point_rocprof([tmp_path], traces)
        return [one for one in found.kernels if one.kernel == rocprofv3.GEMM], found.problems

    return read


def test_figures_of_one_pass(gemm, rocprofv3, tmp_path):
    rocprofv3.write_csv(tmp_path, "12", 12, list(rocprofv3.VALUES))
    [row], problems = gemm(TraceProcess(pid=12, host="", rank=3))
    assert problems == ()
    assert (row.rank, row.rank_source, row.pids, row.device) == (3, "trace", (12,), 0)
    # GRBM_GUI_ACTIVE is the sum over 8 XCCs: without dividing by them, these were 10 and 7.5.
    assert row.metrics.cu_busy_percent == pytest.approx(80)
    assert row.metrics.mfma_util_percent == pytest.approx(60)
    assert row.metrics.occupancy_percent == pytest.approx(25)
    assert (row.metrics.waves, row.metrics.wait_percent) == (4096, None)
    assert (row.count, row.passes, row.median_us, row.is_serialised) == (2, 1, 0.5, True)
    # Grids are in work-items: 65536 of them are 256 groups of 256.
    assert (row.workgroups, row.workgroup_size) == (256, 256)
    assert (row.vgprs, row.accum_vgprs, row.sgprs, row.lds_bytes) == (128, 64, 96, 65536)
    assert row.chip == "gfx942"


def test_a_trace_without_counters_is_comparable(gemm, rocprofv3, tmp_path):
    rocprofv3.write_csv(tmp_path / "node", "rank1_12", 12, ())
    [row], problems = gemm()
    assert (problems, row.rank, row.rank_source, row.host) == ((), 1, "file name", "node")
    assert (row.median_us, row.is_serialised, row.counters) == (0.5, False, {})


def test_passes_are_joined_by_rank(gemm, rocprofv3, tmp_path):
    for number, counters in ((1, UTILIZATION), (2, ("SQ_WAVE_CYCLES", "SQ_WAVES"))):
        for rank in (0, 1):
            # The lower process is that of the higher rank.
            pid = 100 * number + 1 - rank
            rocprofv3.write_csv(tmp_path / f"pass_{number}" / "node", f"rank{rank}_{pid}", pid,
                                counters, device=rank)  # fmt: skip
    rows, problems = gemm()
    assert problems == ()
    assert [(row.rank, row.pids, row.passes) for row in rows] == [
        (0, (101, 201), 2), (1, (100, 200), 2),
    ]  # fmt: skip
    # The time of one pass and the waves of the other.
    assert rows[0].metrics.occupancy_percent == pytest.approx(25)


def test_another_pass_of_the_same_gpu_has_the_same_rank(gemm, rocprofv3, tmp_path):
    for number, pid in ((1, 11), (2, 22)):
        rocprofv3.write_csv(tmp_path / f"pass_{number}", str(pid), pid, UTILIZATION, device=4)
    [row], problems = gemm(TraceProcess(pid=22, host="", rank=6))
    assert (row.rank, row.pids, problems) == (6, (11, 22), ())


@pytest.mark.parametrize("devices", [(0, 1), (0, 0)])
def test_without_any_statement_the_rank_stays_unknown(gemm, rocprofv3, tmp_path, devices):
    """Ranks of one GPU are not mixed up."""
    for pid, device in zip((11, 22), devices, strict=True):
        rocprofv3.write_csv(tmp_path, str(pid), pid, UTILIZATION, device=device)
    rows, [problem] = gemm()
    assert [(row.rank, row.rank_source, row.pids) for row in rows] == [
        (None, "", (11,)), (None, "", (22,)),
    ]  # fmt: skip
    assert [row.device for row in rows] == list(devices)
    assert "11, 22" in problem


def test_numbers_of_dispatches_differ(gemm, rocprofv3, tmp_path):
    counts = {1: 4, 2: 3}
    for number, count in counts.items():
        rocprofv3.write_csv(tmp_path / f"pass_{number}", f"rank0_{number}", number, UTILIZATION,
                            kernels=[rocprofv3.GEMM] * count)  # fmt: skip
    [row], [problem] = gemm()
    assert row.count == 3
    assert "rank 0" in problem


def test_files_of_an_earlier_attempt(gemm, rocprofv3, tmp_path):
    rocprofv3.write_csv(tmp_path, "rank0_1", 1, UTILIZATION, kernels=[rocprofv3.GEMM])
    rocprofv3.write_csv(tmp_path, "rank0_2", 2, UTILIZATION, kernels=[rocprofv3.GEMM] * 3)
    [row], [problem] = gemm()
    assert (row.pids, row.count) == ((2,), 3)
    assert "files of several processes (1, 2); those of process 2" in problem


def test_without_the_gpus_size_there_are_no_percentages(gemm, rocprofv3, tmp_path):
    rocprofv3.write_csv(tmp_path, "rank0_1", 1, [*UTILIZATION, "SQ_WAVES"])
    (tmp_path / "rank0_1_agent_info.csv").unlink()
    [row], [problem] = gemm()
    assert (row.metrics.cu_busy_percent, row.metrics.waves) == (None, 4096)
    assert "agent_info.csv is missing" in problem


def test_an_impossible_percentage_is_not_shown(gemm, rocprofv3, tmp_path):
    values = {**rocprofv3.VALUES, "SQ_BUSY_CU_CYCLES": 4 * rocprofv3.VALUES["SQ_BUSY_CU_CYCLES"]}
    rocprofv3.write_csv(tmp_path, "rank0_1", 1, UTILIZATION, values=values)
    [row], [problem] = gemm()
    assert row.metrics.cu_busy_percent is None
    assert row.metrics.mfma_util_percent == pytest.approx(60)
    assert "cu_busy_percent would be 320 %" in problem


def test_a_derived_counter_is_taken_as_it_is_and_matrix_work_summed(gemm, rocprofv3, tmp_path):
    values = {"MfmaUtil": 42.5, "SQ_INSTS_VALU_MFMA_MOPS_BF16": 2_000_000,
              "SQ_INSTS_VALU_MFMA_MOPS_F16": 0}  # fmt: skip
    rocprofv3.write_csv(tmp_path, "rank0_1", 1, list(values), values=values)
    [row], _ = gemm()
    assert row.metrics.mfma_util_percent == 42.5
    assert row.matrix_gflop == pytest.approx(1.024)


def test_a_folder_without_kernels(gemm, tmp_path):
    (tmp_path / "notes.txt").touch()
    rows, [problem] = gemm()
    assert rows == []
    assert "has no kernels that rocprofv3 recorded" in problem


def test_the_busy_units_of_an_mi300x(gemm, rocprofv3, tmp_path):
    """The counters of ``vecCopy`` in rocprofiler-compute's tests (ROCm/rocm-systems, commit
    1b1610fc, tests/workloads/vcopy/MI300X_A1/pmc_perf.csv, dispatch 0; MIT licence)."""
    values = {
        "GRBM_GUI_ACTIVE": 2572147, "SQ_BUSY_CU_CYCLES": 5304706, "SQ_WAVES": 16384,
        "SQ_WAVE_CYCLES": 37155126,
    }  # fmt: skip
    rocprofv3.write_csv(tmp_path, "rank0_1", 1, list(values), values=values)
    [row], _ = gemm()
    cycles = 2572147 / 8
    assert row.metrics.cu_busy_percent == pytest.approx(400 * 5304706 / cycles / 304)
    assert row.metrics.cu_busy_percent == pytest.approx(21.7, abs=0.05)
    assert row.metrics.occupancy_percent == pytest.approx(400 * 37155126 / cycles / 304 / 32)
