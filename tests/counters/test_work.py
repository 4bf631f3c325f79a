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
from gemmetry.domain.operation import BF16, E2M1, E4M3, F32, F64

RAW = Path(__file__).parents[1] / "data" / "counters" / "h200_cublas_bf16_4096_raw.csv.gz"
REPORTS = RAW.parents[1] / "reports"
WORK = GemmWork(m=4096, n=4096, k=4096, lhs=BF16, rhs=BF16, result=BF16)
NAME = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
OPERATIONS = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
TMA = "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"
STORES = "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"


@pytest.fixture
def checked(counter_launches):
    """Quantity -> check, of a launch with these metrics."""

    def of(values, work=WORK, name=NAME):
        facts = Facts(counter_launches.launch(values, name), work)
        return {one.quantity: one for one in facts.work_checks}

    return of


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
    ("factor", "verdict"), [(1.0, "ok"), (0.5, "less_work"), (2.0, "recompute"), (1.3, "more_work")]
)
def test_operations(checked, factor, verdict):
    assert checked({OPERATIONS: factor * WORK.operations})["operations"].verdict == verdict


def test_padded_tiles_explain_more_operations(checked):
    work = replace(WORK, m=4000, n=4000)
    check = checked({OPERATIONS: 2.0 * 4096 * 4096 * 4096}, work)["operations"]
    assert check.verdict == "padding"
    assert "256×128" in check.reason or "128×256" in check.reason


@pytest.mark.parametrize("cluster", ["2x4", "4x2"])
def test_blocks_of_a_cluster_that_lie_outside_multiply_too(checked, cluster):
    """As counted on an H100: 11 columns of tiles in clusters of four are 12."""
    work = replace(WORK, m=512, n=512, k=512)
    name = f"nvjet_sm90_tst_64x48_64x15_{cluster}_h_bz_TNT"
    check = checked({OPERATIONS: 2.0 * 512 * 576 * 512}, work, name)["operations"]
    assert check.verdict == "padding"


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


def test_a_part_of_the_operations_is_not_less_work(checked):
    part = "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum"
    half = WORK.operations / 2
    assert checked({part: WORK.operations})["operations"].verdict == "ok"
    assert checked({part: half})["operations"].verdict == "skipped"
    both = {part: half, part.replace("_off", "_on"): half}
    assert checked(both)["operations"].verdict == "ok"
    # The total and its parts do not add up.
    assert checked({**both, OPERATIONS: WORK.operations})["operations"].verdict == "ok"
    # A few operations of an epilogue do not show that the format is another one.
    assert checked({"sm__ops_path_tensor_src_fp8.sum": 64.0})["operations"].verdict == "skipped"


TILES = 512 * (256 + 128) * 4096 * 2
ELEMENTS = 4096 * 4096
LEAST = 3 * ELEMENTS * 2.0
REDUCED, ATOMIC = (
    "lts__t_sectors_srcunit_tex_op_red.sum",
    "lts__t_sectors_srcunit_tex_op_atom.sum",
)


@pytest.mark.parametrize(
    ("quantity", "values", "verdict", "reason"),
    [
        ("tiles", {TMA: TILES}, "ok", ""),
        ("tiles", {TMA: 2.0 * TILES}, "recompute", ""),
        ("tiles", {TMA: 1.5 * TILES}, "other_tile", ""),
        # Slices of k write partial sums.
        ("results", {STORES: ELEMENTS * 2.0}, "ok", ""),
        ("results", {SECTORS: ELEMENTS * 2 / 32.0}, "ok", ""),
        ("results", {STORES: ELEMENTS * 4.0}, "wider_result", ""),
        ("results", {STORES: 3 * ELEMENTS * 4.0}, "split_k", "3 slices"),
        ("results", {STORES: ELEMENTS * 1.0}, "less_work", ""),
        ("results", {STORES: 0.0, REDUCED: 1e6, ATOMIC: 0.0}, "split_k", ""),
        ("results", {STORES: ELEMENTS * 1.0, REDUCED: 190.0, ATOMIC: 0.0}, "less_work",
         "narrower format"),
        # Copies by the tensor memory accelerator may have written the rest.
        ("results", {SECTORS: ELEMENTS / 32.0}, "skipped", ""),
        ("results", {SECTORS: 0.0}, "skipped", ""),
        ("results", {SECTORS: 0.0, STORES: 0.0}, "less_work", ""),
        *[("device memory", {"dram__bytes_read.sum": factor * LEAST, "dram__bytes_write.sum": 0.0},
           verdict, "")
          for factor, verdict in ((1.05, "ok"), (0.4, "cached"), (2.5, "reread"))],
    ],
)  # fmt: skip
def test_bytes(checked, quantity, values, verdict, reason):
    found = checked(values)[f"bytes of {quantity}"]
    assert (found.verdict, reason in found.reason) == (verdict, True)


def test_bytes_of_tiles_that_are_unknown_loaded_or_have_factors(checked):
    """Loads are counts of an SGEMM of cuBLAS and of a Triton GEMM on an H200."""

    def tiles(*arguments, **info):
        return checked(*arguments, **info)["bytes of tiles"]

    unknown = tiles({TMA: 1.5 * TILES}, name="my_gemm")
    assert (unknown.verdict, unknown.measured) == ("skipped", 1.5 * TILES)
    assert "square tiles of 114" in unknown.reason
    loads = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
    name = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma"
    work = GemmWork(m=2048, n=2048, k=2048, lhs=F32, rhs=F32)
    check = tiles({loads: 536_870_912 / 32}, work, name)
    assert (check.verdict, check.measured) == ("ok", check.expected)
    triton = tiles({loads: 1_610_612_736 / 32}, name="matmul_kernel")
    assert "square tiles of 171" in triton.reason
    # Scale factors are loaded, tiles are copied, but the bytes of copies were not collected.
    few = {loads: 1e3, "sm__pipe_tma_cycles_active.avg.pct_of_peak_sustained_elapsed": 1.1}
    assert tiles(few).verdict == "skipped"
    work = gemm_work(parse_operation("matmul_4096x4096x4096_e4m3t_e4m3n_bf16t_vs1x128_vs128x128"))
    copied = 4096**3 * (1 / 128 + 1 / 256) + 4096**3 * 4 / 128 * (1 / 128 + 1 / 256 / 128)
    found = tiles({OPERATIONS: work.operations, TMA: copied}, work)
    assert (found.verdict, found.expected) == ("ok", pytest.approx(copied))


def test_kernels_that_are_no_gemms_are_skipped(checked):
    (check,) = checked({OPERATIONS: 0.0}, name="elementwise_kernel<4, FillFunctor>").values()
    assert check.verdict == "skipped"


def test_the_work_of_an_operation_and_of_a_name():
    work = gemm_work(parse_operation("batch_matmul_2x8x16x32_bf16t_bf16n_f32t"))
    assert (work.m, work.n, work.k, work.batch, work.result) == (8, 16, 32, 2, F32)
    assert work.operations == 2 * 2 * 8 * 16 * 32
    found = work_in_name("main$async_dispatch_0_matmul_512x1024x768_f16xf16xf32")
    assert (found.m, found.n, found.k, str(found.lhs)) == (512, 1024, 768, "f16")
    assert work_in_name(NAME) is work_in_name("conv_matmul_like_4x4x4x4") is None


def test_elements_of_blocks_may_be_widened_and_have_factors(checked):
    """The document's product on Hopper, which has no e2m1 and multiplies bf16."""
    work = gemm_work(parse_operation("matmul_8192x8192x1024_e2m1t_e2m1n_f16t_vs16_e8m0"))
    inputs = 2 * 8192 * 1024 * (1 / 2 + 1 / 16)
    values = {
        OPERATIONS: work.operations, SECTORS: 2 * 8192**2 / 32,
        "smsp__inst_executed_op_tma_ld.sum": 0.0,
        "dram__bytes_op_read.sum": inputs, "dram__bytes_read.sum": inputs,
        "dram__bytes_op_write.sum": 2.0 * 8192**2, "dram__bytes_write.sum": 2.0 * 8192**2,
    }  # fmt: skip
    checks = checked(values, work, name="matmul_kernel_block_scaled")
    for quantity in ("operations", "bytes of results", "bytes of device memory"):
        assert checks[quantity].verdict == "ok"
    assert "path bf16, for which elements are widened" in checks["operations"].reason
    assert checks["bytes of device memory"].measured == checks["bytes of device memory"].expected
    plain = gemm_work(parse_operation("matmul_8192x8192x1024_e4m3t_e4m3n_bf16t"))
    assert checked(values, plain)["operations"].verdict == "other_path"
