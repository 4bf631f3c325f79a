from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.counters.collector import read_counters

VCOPY = Path(__file__).parents[2] / "data" / "counters" / "mi300x_vcopy_pmc_perf.csv.gz"


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
