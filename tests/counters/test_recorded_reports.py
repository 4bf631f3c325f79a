"""Reports of public repositories, used in place; they are no part of this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemmetry.counters.collector import read_counters
from gemmetry.counters.gates import diagnose

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("GEMMETRY_TRACES", "") or ROOT.parent / "shared" / "data")


@pytest.fixture
def launch():
    def of(name):
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"{path} is not here")
        if path.suffix == ".ncu-rep":
            pytest.importorskip("ncu_report")
        return read_counters(path)[0]

    return of


def test_a_naive_gemm_is_bound_by_load_store_requests(launch):
    found = diagnose(launch("counters/ncu/gtx1660s_gemm_naive_full.ncu-rep"))
    assert found.verdict.id == "lsu_requests"
    assert found.findings[0].evidence[0].value == pytest.approx(83.1, abs=0.1)
    assert "latency_lg_throttle" in [one.id for one in found.suppressed]


def test_samples_show_that_barriers_of_cublas_are_waits_for_tensor_cores(launch):
    found = diagnose(launch("counters_h200/cublas_bf16_4096.ncu-rep"))
    assert found.verdict.id == "tensor_roof"
    assert "latency_gmma" in [one.id for one in found.suppressed]


def test_a_kernel_that_waits_for_memory_at_two_thirds_of_its_rate(launch):
    found = diagnose(launch("counters/ncu/h100pcie_rmsnorm_full.ncu-rep"))
    assert (found.verdict.id, found.verdict.confidence) == ("latency_long_scoreboard", "high")
    assert found.findings[0].ceiling == "at most 1.49×, when device memory is at its limit"
    assert [one.id for one in found.findings[1:]] == ["dram_roof", "low_clock"]


def test_sections_of_a_product_on_blackwell_leave_the_verdict_open(launch):
    found = diagnose(launch("counters/ncu/b200_cublaslt_fp8_sol.ncu.csv.log"))
    assert found.verdict.id == "cannot_tell"
    assert "--section WarpStateStats" in found.findings[0].collect


def test_a_short_copy_on_amd(launch):
    found = diagnose(launch("counters/rocprof/mi300x_vcopy_pmc_perf.csv"))
    assert found.verdict.id == "cannot_tell"
