from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.counters.collector import read_counters

VCOPY = Path(__file__).parents[2] / "data" / "counters" / "mi300x_vcopy_pmc_perf.csv.gz"

HEADER = ("Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,"
          "Arch_VGPR,Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Correlation_ID,SQ_WAVES,Wave_Size_1,"
          "TCC_HIT[0],TCC_HIT[1],SQ_WAVES_EQ_64,Start_Timestamp,End_Timestamp")  # fmt: skip
ROW = '0,2,1048576,256,1024,0,4,8,16,64,"f(int, int) (.kd)",0,16384,64,5,7,3,{start},{end}'


def table(tmp_path, *rows, header=HEADER):
    file = tmp_path / "pmc_perf.csv"
    file.write_text("\n".join((header, *rows)) + "\n")
    return read_counters(file)


def test_a_row_is_a_launch(tmp_path):
    found = table(tmp_path, ROW.format(start=100, end=350), ROW.format(start=400, end=600))
    assert (found.tool, len(found), found.problems) == ("rocprof-compute", 2, [])
    launch = found[0]
    assert (launch.name, launch.info.grid, launch.info.block) == (
        "f(int, int)", (4096, 1, 1), (256, 1, 1),
    )  # fmt: skip
    assert launch.metrics() == {
        "gpu__time_duration.sum": 250, "SQ_WAVES": 16384, "SQ_WAVES_EQ_64": 3, "TCC_HIT": 12,
        "TCC_HIT_sum": 12, "lds_block_size": 1024, "scratch_size": 0, "vgpr_count": 4,
        "accum_vgpr_count": 8, "sgpr_count": 16,
    }  # fmt: skip


@pytest.mark.parametrize(("start", "end"), [("8.1097E+14", "8.1097E+14"), ("", ""), ("9", "5")])
def test_what_is_missing_or_rounded_is_unknown_and_a_cut_row_a_problem(start, end, tmp_path):
    row = ROW.format(start=start, end=end).replace(",5,7,", ",5,,")
    found = table(tmp_path, row, "1,2,1048576")
    (launch,) = found
    assert (launch.duration_ns, launch.value("TCC_HIT")) == (None, None)
    assert launch.value("SQ_WAVES") == 16384
    (problem,) = found.problems
    assert problem.startswith("line 3")


def test_a_real_table_with_the_description_of_its_machine():
    found = read_counters(VCOPY)
    facts = (found.tool, found.version, len(found), found.problems)
    assert facts == ("rocprof-compute", "2", 3, [])
    launch = found[0]
    assert (launch.name, launch.info.device, launch.info.capability) == (
        "vecCopy(double*, double*, double*, int, int)", "MI300X", "gfx942",
    )  # fmt: skip
    assert launch.info.grid == (4096, 1, 1)
    facts = {"cu_count": 304, "simd_count": 1216, "num_xcc": 8, "max_waves_per_cu": 32}
    assert {name: launch.value(name) for name in facts} == facts
    assert launch.value("SQ_WAVES") == 16384  # 4096 workgroups of 4 waves
    assert launch.value("TCC_REQ_sum") == launch.value("TCC_HIT_sum") + launch.value("TCC_MISS_sum")
    # All channels of all XCCs, in another pass than the sum that rocprofv3 wrote.
    assert launch.value("TCC_HIT") == pytest.approx(launch.value("TCC_HIT_sum"), rel=0.02)
    assert launch.duration_ns is None
    gui, busy = launch.value("GRBM_GUI_ACTIVE"), launch.value("SQ_BUSY_CU_CYCLES")
    assert 100 * 4 * busy / (gui / 8 * 304) == pytest.approx(21.7, abs=0.1)


def test_the_folder_of_a_workload(tmp_path):
    table(tmp_path, ROW.format(start=1, end=2))
    (tmp_path / "sysinfo.csv").write_text(
        "gpu_model,gpu_arch,cu_per_gpu,simd_per_cu\nMI210,gfx90a,104,4\n"
    )
    (launch,) = read_counters(tmp_path)
    assert (launch.info.device, launch.value("simd_count")) == ("MI210", 416)
    assert launch.value("num_xcc") is None
