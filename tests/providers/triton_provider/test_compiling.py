"""Tests of cross-compiling, and of reading what compilers print."""

from __future__ import annotations

import importlib.util
import re

import pytest
from tests.providers.conftest import dispatch_of

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, parse_target
from gemmetry.domain.errors import CompileError
from gemmetry.providers.triton_provider.provider import PROVIDER

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

TILE = "tile_64x64x32_warps4_stages2_group8"


def dispatch(target: str, operation: str, configuration: str = TILE) -> Dispatch:
    return dispatch_of(PROVIDER(), operation, configuration, parse_target(target))


@pytest.mark.parametrize(
    ("target", "instruction", "forms"),
    [("cuda-sm_90", "wgmma", {"ptx", "cubin"}), ("hip-gfx942", "mfma", {"amdgcn", "hsaco"})],
)
def test_cross_compiling_shows_what_is_in_the_machine_code(workspace, target, instruction, forms):
    name = "matmul_64x64x64_bf16t_bf16t_bf16t"
    (compiled,) = PROVIDER().compile([dispatch(target, name)], workspace)
    assert compiled.error is None
    facts = compiled.facts
    assert (facts.matrix_instruction, facts.spill_bytes) == (instruction, 0)
    assert 16 < facts.registers < 256
    assert facts.shared_memory_bytes and facts.compile_ns
    names = {path.name for path in (workspace.generated / "triton" / "matmul" / name).iterdir()}
    stem = f"{TILE}.{target.partition('-')[2]}"
    assert {f"{stem}.{form}" for form in forms | {"ttir", "json"}} <= names
    assert "triton_matmul.py" in names
    for path in (facts.source_path, facts.binary_path, facts.assembly_path):
        assert (workspace.generated.parent / path).is_file()
    if target.startswith("cuda"):
        printed = (workspace.generated.parent / facts.tool_output_path).read_text()
        assert printed.startswith(f"$ cuobjdump -res-usage {stem}.cubin\n")
        assert f"REG:{facts.registers}" in printed


@pytest.mark.parametrize(
    ("target", "operation", "instruction"),
    [
        ("cuda-sm_90", "matmul_16x96x64_e4m3t_e4m3n_bf16t", "wgmma"),
        ("cuda-sm_90", "matmul_64x80x64_s8t_s8n_s32t", "wgmma"),
        ("cuda-sm_90", "matmul_64x64x80_e4m3t_e4m3n_bf16t", "wgmma"),
        ("cuda-sm_90", "matmul_16x80x80_s8t_s8n_s32t", "wgmma"),
        ("cuda-sm_90", "matmul_65x33x70_e4m3n_e5m2t_bf16n_scalerow_bias_gelu", "wgmma"),
        ("cuda-sm_80", "matmul_65x33x70_s8t_s8t_s32n_beta1_residual", "mma.sync"),
        ("hip-gfx942", "batch_matmul_2x65x33x70_e4m3fnuzt_e4m3fnuzn_f32t_alpha2", "mfma"),
    ],
)
def test_tiles_that_stick_out_of_small_types_compile(workspace, target, operation, instruction):
    (compiled,) = PROVIDER().compile([dispatch(target, operation)], workspace)
    assert compiled.error is None
    assert compiled.facts.matrix_instruction == instruction


def test_a_rejected_configuration_costs_no_other(workspace: Workspace) -> None:
    tiles = ("tile_128x256x128_warps8_stages6_group8", TILE)
    wanted = [dispatch("cuda-sm_90", "matmul_64x64x64_f16t_f16t_f16t", tile) for tile in tiles]
    bad, good = PROVIDER().compile(wanted, workspace)
    assert isinstance(bad.error, CompileError) and "shared memory" in bad.error.message
    assert good.error is None and good.facts.matrix_instruction == "wgmma"


def test_default_reports_the_chosen_configuration(workspace: Workspace) -> None:
    wanted = dispatch("cuda-sm_80", "matmul_64x64x64_f32t_f32t_f32t", "default")
    (compiled,) = PROVIDER().compile([wanted], workspace)
    assert re.fullmatch(r"tile_\w+", compiled.facts.default_configuration or "")
    assert compiled.facts.matrix_instruction == "none"


def test_what_compilers_say_is_read() -> None:
    from gemmetry.providers.triton_provider.compiling import (
        amd_resources,
        as_compile_error,
        first_useful_line,
        parse_resource_usage,
    )

    usage = " Function matmul_kernel:\n  REG:210 STACK:16 SHARED:0 LOCAL:8"
    assert parse_resource_usage(usage) == (210, 24)
    assert parse_resource_usage("cuobjdump fatal: no file") == (None, None)
    assembly = "    .vgpr_count:     196\n    .vgpr_spill_count: 3\n"
    assert amd_resources(assembly) == (196, 12)
    assert amd_resources("") == (None, None)
    shown = ValueError("at 92:22:\n  tl.dot(a, b)\n  ^\nInput shapes should have K >= 16")
    assert first_useful_line(shown) == "Input shapes should have K >= 16"
    error = RuntimeError("note: x\nptxas error: too many registers\nstack")
    assert first_useful_line(error) == "ptxas error: too many registers"
    outer = ValueError("at 90:17:\n  tile = load(pointers)\n         ^")
    outer.__cause__ = AssertionError("cannot cast int32 to fp8")
    assert first_useful_line(outer) == "cannot cast int32 to fp8"
    wanted = dispatch("cuda-sm_90", "matmul_64x64x64_f32t_f32t_f32t")
    with pytest.raises(CompileError, match="PassManager"), as_compile_error(wanted):
        raise RuntimeError("PassManager::run failed")


def test_a_missing_device_is_reported(workspace: Workspace) -> None:
    wanted = dispatch("cuda-sm_90", "matmul_64x64x64_f32t_f32t_f32t")
    with pytest.raises(Exception, match="only be compiled"):
        PROVIDER().build(wanted, workspace)
