"""Names of tiles, which are valid, what a search tries, and the choice behind ``default``."""

from __future__ import annotations

import importlib.util

import pytest
from tests.providers.conftest import dispatch_of

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import parse_operation, parse_target
from gemmetry.providers.triton_provider.block_scaled import (
    architecture_of,
    cross_targets,
)
from gemmetry.providers.triton_provider.provider import PROVIDER, search_space
from gemmetry.providers.triton_provider.tiles import (
    TritonTile,
    parse_tile,
    shared_memory_bytes,
    valid_tiles,
    why_invalid,
)

BF16 = parse_operation("matmul_4096x4096x4096_bf16t_bf16t_bf16t")
ARCHITECTURES = {target.architecture: architecture_of(target) for target in cross_targets()}
HOPPER = ARCHITECTURES["sm_90"]


@pytest.mark.parametrize(
    ("tile", "architecture", "expected"),
    [
        (TritonTile(128, 256, 64, 8, 3), "sm_90", 147456),
        (TritonTile(128, 256, 64, 8, 3), "sm_80", 98304),
        (TritonTile(256, 128, 64, 8, 2), "gfx942", 49152),
        (TritonTile(256, 128, 64, 8, 2), "gfx950", 98304),
    ],
)
def test_shared_memory_is_what_triton_was_seen_to_use(tile, architecture, expected) -> None:
    assert shared_memory_bytes(tile, BF16, ARCHITECTURES[architecture]) == expected


SEARCHED = (
    "matmul_4096x4096x4096_bf16t_bf16n_bf16t",
    "matmul_16x14336x4096_f16t_f16n_f16t",
    "matmul_4096x4096x4096_e4m3t_e4m3n_bf16t",
    "matmul_512x512x512_f32t_f32t_f32t",
    "matmul_512x512x512_s8t_s8n_s32t",
    "matmul_512x512x512_e4m3t_e4m3n_bf16t_vs1x128",
    "batch_matmul_4x512x512x512_bf16t_bf16t_bf16t",
)


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("target", ["cuda-sm_80", "cuda-sm_90", "hip-gfx942"])
def test_every_configuration_is_valid_and_its_name_parses_back(name, target):
    operation, where = parse_operation(name), parse_target(target)
    architecture = architecture_of(where)
    found = list(search_space(operation, architecture))
    assert len({one.name for one in found}) == len(found)
    for one in found:
        tile = parse_tile(one.name)
        assert tile is not None and tile.configuration == one
        assert why_invalid(tile, operation, architecture) is None
    listed = valid_tiles(operation, architecture)
    assert [one.name for one in found[: len(listed)]] == [tile.name for tile in listed]


def test_the_space_is_larger_than_the_list_where_a_search_is_worth_it():
    operation = parse_operation(SEARCHED[0])
    found = list(search_space(operation, HOPPER))
    assert len(found) > 5 * len(valid_tiles(operation, HOPPER))
    assert len({one.parameters.get("method") for one in found}) == 3
    few = parse_operation("matmul_16x4096x4096_bf16t_bf16n_bf16t")
    listed = {tile.name for tile in valid_tiles(few, HOPPER)}
    others = [one for one in search_space(few, HOPPER) if one.name not in listed]
    assert {one.parameters["block_m"] for one in others} == {16}, "much larger ones are left out"
    interpreted = parse_operation("matmul_64x64x64_f32t_f32t_f32t")
    names = [one.name for one in search_space(interpreted, None)]
    assert names == [tile.name for tile in valid_tiles(interpreted, None)]


def test_the_pointer_kernel_remains_where_descriptors_do_not_apply() -> None:
    for shape, describes in (("256x512x384", True), ("257x129x65", False)):
        operation = parse_operation(f"matmul_{shape}_bf16t_bf16n_bf16t")
        tiles = valid_tiles(operation, HOPPER)
        assert tiles and any(tile.describes for tile in tiles) is describes


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize(
    ("operation", "tile"),
    [("256x512x384_bf16t_bf16n_bf16t", "128x256x64_warps8_stages4"),
     ("256x512x384_e4m3t_e4m3n_bf16t_scaletensor", "256x128x128_warps8_stages4")],
)  # fmt: skip
def test_bulk_copies_feed_the_tensor_cores(workspace: Workspace, operation: str, tile: str) -> None:
    target, name = parse_target("cuda-sm_90"), f"persistent_tile_{tile}_group8_parts2"
    dispatch = dispatch_of(PROVIDER(), f"matmul_{operation}", name, target)
    (compiled,) = PROVIDER().compile([dispatch], workspace)
    assert compiled.error is None
    assert (compiled.facts.matrix_instruction, compiled.facts.spill_bytes) == ("wgmma", 0)
    path = workspace.generated.parent / compiled.facts.assembly_path
    assembly = path.read_text()
    assert "cp.async.bulk.tensor.2d.shared" in assembly
    assert "cp.async.bulk.tensor.2d.global" in assembly
    assert "ld.global.v4" not in assembly
    assert (path.parent / "triton_descriptors.py").is_file()
