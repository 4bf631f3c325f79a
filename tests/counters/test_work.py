"""Counts of work next to the model: what agrees, and what explains a difference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmetry.counters.collector import read_counters
from gemmetry.counters.facts import Facts
from gemmetry.counters.gates import diagnose
from gemmetry.counters.rules.limits import work_mismatch
from gemmetry.counters.work import GemmWork, gemm_work, work_in_name
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import BF16, DTYPES, E2M1, E4M3, F32, F64

RAW = Path(__file__).parents[1] / "data" / "counters" / "h200_cublas_bf16_4096_raw.csv.gz"
REPORTS = RAW.parents[1] / "reports"
WORK = GemmWork(m=4096, n=4096, k=4096, lhs=BF16, rhs=BF16, result=BF16)
NAME = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


def test_checks_of_work(case, counter_launches):
    work, found = None, []
    for what, names, given in case.calls():
        if what == "operation":
            work = gemm_work(parse_operation(names[0]))
        elif what == "work":
            work = GemmWork(**{key: DTYPES.get(one, one) for key, one in given.items()})
        else:
            launch = counter_launches.launch(given, names[0])
            for one in Facts(launch, work).work_checks:
                facts = {"measured": one.measured, "expected": one.expected, "reason": one.reason}
                found.append((f"{one.quantity}: {one.verdict}", facts))
    case.check(found)


def test_a_recorded_product_agrees_with_the_model_to_the_last_digit():
    (launch,) = read_counters(RAW)
    checks = {one.quantity: one for one in Facts(launch, WORK).work_checks}
    assert {name: one.verdict for name, one in checks.items()} == {
        "operations": "ok", "bytes of tiles": "ok", "bytes of results": "ok",
        "bytes of device memory": "reread",
    }  # fmt: skip
    assert checks["operations"].measured == checks["operations"].expected == 2 * 4096**3
    assert checks["bytes of tiles"].expected == 512 * (256 + 128) * 4096 * 2
    assert checks["bytes of results"].measured == 4096 * 4096 * 2
    moved = checks["bytes of device memory"]
    assert moved.measured / moved.expected == pytest.approx(1.75, abs=0.01)
    # The formats follow from the kernel's name.
    plain = Facts(launch, GemmWork(m=4096, n=4096, k=4096)).work_checks
    assert [one.verdict for one in plain] == ["ok", "ok", "ok", "reread"]


@pytest.mark.parametrize(
    ("kernel", "dtype", "verdict"),
    [("qqtst", E4M3, "ok"), ("ootst", E2M1, "ok"), ("ootst", E4M3, "other_path"),
     ("qqtst", BF16, "other_path")],
)  # fmt: skip
def test_operations_that_only_the_counter_of_an_instruction_shows(kernel, dtype, verdict):
    (launch,) = (one for one in read_counters(REPORTS / "16/b300_ops.csv") if kernel in one.name)
    found = diagnose(launch, replace(WORK, lhs=dtype, rhs=dtype))
    assert found.work_check[0].measured == WORK.operations
    assert found.work_check[0].verdict == verdict
    assert all("bf16" not in one.collect for one in found.findings)


@pytest.mark.parametrize(("chip", "dtype", "concept", "metric"), [
    ("10.0", E4M3, "tensor_ops_fp8", "fp4_fp6_fp8"), ("10.3", E4M3, "tensor_ops_fp8", "src_fp8"),
    ("9.0", E4M3, "tensor_ops_fp8", "src_fp8"), ("9.0", BF16, "tensor_ops_bf16", "src_bf16"),
    ("10.3", E2M1, "tensor_ops_fp4", "src_fp4"), ("9.0", F64, "tensor_ops_fp64", "src_fp64"),
    ("gfx942", E4M3, "tensor_ops_fp8", "MOPS_F8"), ("gfx942", BF16, "tensor_ops_bf16", "MOPS_BF16"),
])  # fmt: skip
def test_the_missing_counter_is_that_of_the_works_own_format(
    counter_launches, chip, dtype, concept, metric
):
    values, tool = counter_launches.metrics(), "ncu"
    if chip.startswith("gfx"):
        values, tool = {}, "rocprofv3"
    launch = counter_launches.launch(values, "my_gemm", capability=chip, tool=tool)
    facts = Facts(launch, replace(WORK, lhs=dtype, rhs=dtype))
    assert concept in facts.work_checks[0].reason
    [asked] = (one.collect for one in work_mismatch.judge(facts))
    assert metric in asked
    assert dtype is BF16 or "BF16" not in asked.upper()


def test_the_work_of_an_operation_and_of_a_name():
    work = gemm_work(parse_operation("batch_matmul_2x8x16x32_bf16t_bf16n_f32t"))
    assert (work.m, work.n, work.k, work.batch, work.result) == (8, 16, 32, 2, F32)
    assert work.operations == 2 * 2 * 8 * 16 * 32
    found = work_in_name("main$async_dispatch_0_matmul_512x1024x768_f16xf16xf32")
    assert (found.m, found.n, found.k, str(found.lhs)) == (512, 1024, 768, "f16")
    assert work_in_name(NAME) is work_in_name("conv_matmul_like_4x4x4x4") is None
