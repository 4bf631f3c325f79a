"""Reports of public repositories, used in place; they are no part of this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemmetry.counters.collector import read_counters
from gemmetry.counters.gates import diagnose

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("GEMMETRY_TRACES", "") or ROOT.parent / "shared" / "data")


@pytest.mark.parametrize(
    ("name", "verdict", "ids", "detail"),
    [
        ("counters/ncu/gtx1660s_gemm_naive_full.ncu-rep", "lsu_requests",
         {"latency_lg_throttle"}, "83.1"),
        # Samples show that barriers of cuBLAS are waits for tensor cores.
        ("counters_h200/cublas_bf16_4096.ncu-rep", "tensor_roof", {"latency_gmma"}, ""),
        ("counters/ncu/h100pcie_rmsnorm_full.ncu-rep", "latency_long_scoreboard high",
         {"dram_roof", "low_clock"}, "at most 1.49×, when device memory is at its limit"),
        # Sections of a product on Blackwell leave the verdict open.
        ("counters/ncu/b200_cublaslt_fp8_sol.ncu.csv.log", "cannot_tell", set(),
         "--section WarpStateStats"),
        ("counters/rocprof/mi300x_vcopy_pmc_perf.csv", "cannot_tell", set(), ""),
    ],
)  # fmt: skip
def test_a_recorded_report(name, verdict, ids, detail):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    if path.suffix == ".ncu-rep":
        pytest.importorskip("ncu_report")
    found = diagnose(read_counters(path)[0])
    first = found.findings[0]
    assert f"{found.verdict.id} {found.verdict.confidence}".startswith(verdict)
    assert ids <= {one.id for one in (*found.findings, *found.suppressed)}
    shares = [f"{one.value:.1f}" for one in first.evidence]
    assert detail in " ".join([*shares, first.ceiling, first.collect])
