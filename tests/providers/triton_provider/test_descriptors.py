"""Tests of tiles moved by tensor descriptors: names, where they apply, and the machine code."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, parse_target
from gemmetry.domain.names import parse_operation
from gemmetry.providers.triton_provider.block_scaled import architecture_of
from gemmetry.providers.triton_provider.provider import PROVIDER
from gemmetry.providers.triton_provider.tiles import (
    TritonTile,
    parse_tile,
    valid_tiles,
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


def test_the_pointer_kernel_remains_where_descriptors_do_not_apply() -> None:
    hopper = architecture_of(parse_target("cuda-sm_90"))
    assert any(tile.describes for tile in valid_tiles(parse_operation(BF16), hopper))
    odd = valid_tiles(parse_operation("matmul_257x129x65_bf16t_bf16n_bf16t"), hopper)
    assert odd and not any(tile.describes for tile in odd)


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
