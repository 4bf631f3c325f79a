"""Tests of tiles moved by tensor descriptors: names, where they apply, and the machine code."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, parse_target
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.names import parse_operation
from gemmetry.providers.triton_provider.block_scaled import architecture_of
from gemmetry.providers.triton_provider.plan import make_plan
from gemmetry.providers.triton_provider.provider import PROVIDER
from gemmetry.providers.triton_provider.tiles import (
    TritonTile,
    parse_tile,
    valid_tiles,
    why_invalid,
)

BF16 = "matmul_256x512x384_bf16t_bf16n_bf16t"
FP8 = "matmul_256x512x384_e4m3t_e4m3n_bf16t_scaletensor"
TILE = TritonTile(128, 256, 64, 8, 4, method="persistent", parts=2)
FP8_TILE = TritonTile(256, 128, 128, 8, 3, method="persistent", parts=2)


def test_names_parse_back() -> None:
    assert TILE.name == "persistent_tile_128x256x64_warps8_stages4_group8_parts2"
    assert parse_tile(TILE.name) == TILE and TILE.parameters["parts"] == 2
    assert parse_tile("tile_128x256x64_warps8_stages4_group8_parts2") is None
    assert parse_tile(TILE.name.replace("parts2", "parts3")) is None


@pytest.mark.parametrize(
    ("operation", "tile", "target", "reason"),
    [
        (BF16, TILE, "cuda-sm_80", "need sm_90 or newer"),
        (BF16, TILE, "hip-gfx942", "need sm_90 or newer"),
        ("batch_matmul_2x64x64x64_bf16t_bf16n_bf16t", TILE, "cuda-sm_90", "not batch_matmul"),
        ("matmul_64x64x64_s8t_s8n_s32t", TILE, "cuda-sm_90", "bf16, f16 and fp8, not s8"),
        ("matmul_64x64x64_f16t_f16n_f16t_accf16", TILE, "cuda-sm_90", "accumulates in f32"),
        ("matmul_64x64x65_bf16t_bf16n_bf16t", TILE, "cuda-sm_90", "lhs: 130"),
        ("matmul_64x65x64_bf16t_bf16n_bf16t", TILE, "cuda-sm_90", "result: 130"),
        ("matmul_64x64x64_e4m3t_e4m3t_bf16t", FP8_TILE, "cuda-sm_90", "along K"),
        (FP8, TritonTile(64, 64, 256, 4, 2, method="persistent"), "cuda-sm_90", "at most 128"),
        (
            FP8,
            TritonTile(64, 64, 64, 4, 2, method="persistent", parts=2),
            "cuda-sm_90",
            "at least 64 rows",
        ),
        (
            FP8,
            TritonTile(256, 128, 128, 8, 3, method="persistent"),
            "cuda-sm_90",
            "256 sums and products",
        ),
        (BF16, TritonTile(512, 64, 64, 8, 2, method="persistent"), "cuda-sm_90", "at most 256"),
    ],
)
def test_impossible_tiles_say_why(
    operation: str, tile: TritonTile, target: str, reason: str
) -> None:
    architecture = architecture_of(parse_target(target))
    assert architecture is not None
    assert reason in str(why_invalid(tile, parse_operation(operation), architecture))


def test_the_pointer_kernel_remains_where_descriptors_do_not_apply() -> None:
    hopper = architecture_of(parse_target("cuda-sm_90"))
    assert any(tile.describes for tile in valid_tiles(parse_operation(BF16), hopper))
    odd = valid_tiles(parse_operation("matmul_257x129x65_bf16t_bf16n_bf16t"), hopper)
    assert odd and not any(tile.describes for tile in odd)


@pytest.mark.parametrize("fused", ["beta1", "residual", "beta1_bias_relu_residual"])
def test_what_an_epilogue_loads_takes_shared_memory_of_persistent_programs(fused: str) -> None:
    hopper = architecture_of(parse_target("cuda-sm_90"))
    assert hopper is not None
    tile = TritonTile(128, 256, 64, 8, 3, method="persistent")
    plain = "matmul_528x272x400_bf16t_bf16t_bf16t"
    assert why_invalid(tile, parse_operation(plain), hopper) is None
    # Triton 3.6 and 3.9 compile it with 245784 bytes.
    reason = why_invalid(tile, parse_operation(f"{plain}_{fused}"), hopper) or ""
    assert "bytes of shared memory" in reason


def test_matrices_are_described_as_they_are_stored() -> None:
    plan = make_plan(parse_operation("matmul_256x512x384_bf16n_bf16t_f32n_bias"), TILE)
    assert plan.pointers["a"] == "tensordesc<bf16[64, 128]>"
    assert plan.pointers["b"] == "tensordesc<bf16[64, 256]>"
    assert plan.pointers["c"] == "tensordesc<fp32[128, 128]>"
    assert plan.pointers["bias"].startswith("*") and plan.persistent
    names = ("a", "bias", "m")
    assert set(plan.attributes(names)) == {(1,), (2,)}
    halves = make_plan(parse_operation(FP8), FP8_TILE)
    assert halves.boxes == {"a": (128, 128), "b": (128, 128), "c": (128, 128)}
    assert halves.constants["PROMOTED"] and not plan.constants["PROMOTED"]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize(("operation", "tile"), [(BF16, TILE), (FP8, replace(FP8_TILE, stages=4))])
def test_bulk_copies_feed_the_tensor_cores(
    workspace: Workspace, operation: str, tile: TritonTile
) -> None:
    target = parse_target("cuda-sm_90")
    dispatch = Dispatch(parse_operation(operation), tile.configuration, "triton", target)
    (compiled,) = PROVIDER().compile([dispatch], workspace)
    assert compiled.error is None
    assert compiled.facts.matrix_instruction == "wgmma"
    assert compiled.facts.assembly_path is not None
    assert compiled.facts.spill_bytes == 0
    path = workspace.generated.parent / compiled.facts.assembly_path
    assembly = path.read_text()
    assert "cp.async.bulk.tensor.2d.shared" in assembly
    assert "cp.async.bulk.tensor.2d.global" in assembly
    assert "ld.global.v4" not in assembly
    assert (path.parent / "triton_descriptors.py").is_file()


def test_other_gpus_get_a_reason(workspace: Workspace) -> None:
    target = parse_target("cuda-sm_80")
    dispatch = Dispatch(parse_operation(BF16), TILE.configuration, "triton", target)
    (compiled,) = PROVIDER().compile([dispatch], workspace)
    assert isinstance(compiled.error, UnsupportedError)
    assert "sm_90 or newer" in compiled.error.message
