"""Counters of AMD GPUs pass the same gates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmetry.counters.gates import diagnose
from gemmetry.counters.roofline import roofline_of
from gemmetry.counters.work import GemmWork
from gemmetry.domain.operation import BF16

NAME = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB0"
WORK = GemmWork(m=4096, n=4096, k=4096, lhs=BF16, rhs=BF16, result=BF16)
CYCLES = 400_000.0
UNITS, XCCS = 304.0, 8.0


@pytest.fixture
def launch(counter_launches):
    """A launch of 200 µs on an MI300X, in which nothing stands out."""

    def of(name=NAME, without=(), **changed):
        values = {
            "gpu__time_duration.sum": 200_000.0,
            "cu_count": UNITS, "simd_count": 4 * UNITS, "num_xcc": XCCS, "max_waves_per_cu": 32.0,
            "GRBM_GUI_ACTIVE": XCCS * CYCLES,
            "SQ_BUSY_CU_CYCLES": 0.95 * CYCLES * UNITS / 4,
            "SQ_WAVE_CYCLES": 8 * CYCLES * UNITS / 4,
            "SQ_VALU_MFMA_BUSY_CYCLES": 0.2 * CYCLES * 4 * UNITS,
            "SQ_ACTIVE_INST_VALU": 0.3 * CYCLES * UNITS,
            "SQ_LDS_IDX_ACTIVE": 0.3 * CYCLES * UNITS,
            "SQ_LDS_BANK_CONFLICT": 0.0,
            "SQ_WAIT_ANY": 0.8 * 8 * CYCLES * UNITS / 4,
            "SQ_INSTS_VALU_MFMA_MOPS_BF16": WORK.operations / 512,
            "FETCH_SIZE": 100e6 / 1024, "WRITE_SIZE": 34e6 / 1024,
        }  # fmt: skip
        values |= changed
        values = {key: value for key, value in values.items() if key not in without}
        return counter_launches.launch(
            values, name, tool="rocprofv3", capability="gfx942", device="AMD Instinct MI300X",
            grid=(16, 16, 1),
        )  # fmt: skip

    return of


def test_matrix_units_at_their_limit(launch):
    found = diagnose(launch(SQ_VALU_MFMA_BUSY_CYCLES=0.88 * CYCLES * 4 * UNITS), WORK)
    assert (found.verdict.id, found.verdict.confidence) == ("tensor_roof", "high")
    assert found.findings[0].evidence[0].value == pytest.approx(88)
    assert [one.id for one in found.suppressed] == ["latency_any"]
    assert found.work_check[0].verdict == "ok"
    assert found.verdict.claim == "The matrix unit is at 88.0 % of its peak rate"


def test_a_grid_consists_of_workgroups_for_compute_units(launch):
    found = diagnose(launch(cu_count=1000.0, SQ_BUSY_CU_CYCLES=0.1 * CYCLES * UNITS / 4))
    (few,) = (one for one in found.findings if one.id == "grid_too_small")
    assert few.claim == "The grid has 256 workgroups for 1,000 compute units"
    assert few.evidence[0].unit == "workgroup"
    assert "more workgroups" in few.remedy


def test_the_memory_at_its_limit(launch):
    found = diagnose(launch(FETCH_SIZE=900e6 / 1024), WORK)
    assert (found.verdict.id, found.findings[0].id) == ("dram_roof", "l2_reuse")
    assert "MI300X" in found.findings[1].evidence[0].source


def test_bank_conflicts_of_the_lds(launch):
    busy = {"SQ_LDS_IDX_ACTIVE": 0.9 * CYCLES * UNITS, "SQ_LDS_BANK_CONFLICT": 0.7 * CYCLES * UNITS}
    found = diagnose(launch(**busy))
    assert (found.verdict.id, found.findings[0].id) == (
        "shared_memory_roof", "shared_bank_conflicts",
    )  # fmt: skip


def test_waves_that_wait(launch):
    found = diagnose(launch())
    assert found.verdict.id == "latency_any"
    assert found.verdict.claim.startswith("Waves spend 80 %")


def test_what_was_not_counted_is_named_by_its_counters(launch):
    found = diagnose(launch(without=["SQ_VALU_MFMA_BUSY_CYCLES"]))
    assert found.verdict.id == "cannot_tell"
    assert "how busy the matrix unit is" in found.verdict.claim
    assert found.findings[0].collect == "--pmc SQ_VALU_MFMA_BUSY_CYCLES GRBM_GUI_ACTIVE"


def test_counters_that_are_missing_are_one_list(launch):
    """Of several options --pmc, rocprofv3 takes the last one."""
    missing = ["SQ_VALU_MFMA_BUSY_CYCLES", "SQ_ACTIVE_INST_VALU", "SQ_LDS_IDX_ACTIVE"]
    found = diagnose(launch(without=missing))
    assert "gemmetry counters collect" in found.findings[0].remedy
    assert found.findings[0].collect == (
        "--pmc SQ_VALU_MFMA_BUSY_CYCLES GRBM_GUI_ACTIVE SQ_ACTIVE_INST_VALU SQ_LDS_IDX_ACTIVE"
    )


@pytest.mark.parametrize(
    ("without", "missing", "collect"),
    [
        ("gpu__time_duration.sum", "for how long the kernel ran", "--kernel-trace"),
        ("", "which GPU it ran on", ""),
    ],
)
def test_bytes_of_device_memory_are_not_requested_again(launch, without, missing, collect):
    one = launch(without=[without])
    info = replace(one.info, device="")
    found = diagnose(replace(one.table, infos=[info])[0])
    assert found.verdict.id == "cannot_tell"
    assert missing in found.verdict.claim
    assert found.findings[0].collect == collect


def test_a_spinning_collective(launch):
    found = diagnose(launch("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"))
    assert found.verdict.id == "cannot_tell"


def test_idle_compute_units(launch):
    found = diagnose(launch(SQ_BUSY_CU_CYCLES=0.5 * CYCLES * UNITS / 4))
    assert (found.verdict.id, found.verdict.confidence) == ("block_imbalance", "low")
    assert found.verdict.claim.startswith("Compute units have no work for 50 % of the time:")


def test_the_roofline(launch):
    roofline = roofline_of(launch())
    assert roofline.path == "bf16"
    assert roofline.datasheet_peak == pytest.approx(1307.4e12)
    assert [level.name for level in roofline.levels] == ["device memory", "shared memory"]
    assert roofline.levels[0].peak_bytes_per_s == pytest.approx(5.3e12)
