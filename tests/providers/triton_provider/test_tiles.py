"""Tests of configuration names, the validity filter and the choice behind ``default``."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.providers.triton_provider.block_scaled import (
    Architecture,
    architecture_of,
    cross_targets,
)
from gemmetry.providers.triton_provider.tiles import (
    PERSISTENT,
    TritonTile,
    choose,
    parse_tile,
    shared_memory_bytes,
    tile_of,
    valid_tiles,
)

BF16 = parse_operation("matmul_4096x4096x4096_bf16t_bf16t_bf16t")
ARCHITECTURES = {target.architecture: architecture_of(target) for target in cross_targets()}


def architecture(name: str) -> Architecture:
    found = ARCHITECTURES[name]
    assert found is not None
    return found


@settings(deadline=None, max_examples=50)
@given(
    sizes=st.tuples(*[st.integers(4, 9)] * 3),
    warps=st.integers(0, 4),
    stages=st.integers(1, 9),
    group=st.integers(1, 64),
)
def test_names_parse_back(sizes: tuple[int, int, int], warps: int, stages: int, group: int) -> None:
    tile = TritonTile(*(2**size for size in sizes), 2**warps, stages, group)
    assert parse_tile(tile.name) == tile


@pytest.mark.parametrize(
    "name",
    [
        "default",
        "tile_128x128x64",
        "tile_0128x128x64_warps8_stages3_group8",
        "tile_96x128x64_warps8_stages3_group8",
        "tile_128x128x64_warps3_stages3_group8",
        "tile_128x128x64_warps8_stages0_group8",
        "tile_2048x128x64_warps8_stages3_group8",
        "tile_128x128x64_warps8_stages3_group8_",
    ],
)
def test_other_names_are_not_tiles(name: str) -> None:
    assert parse_tile(name) is None


def test_shared_memory_is_what_triton_was_seen_to_use() -> None:
    tile = TritonTile(128, 256, 64, 8, 3)
    assert shared_memory_bytes(tile, BF16, architecture("sm_90")) == 147456
    assert shared_memory_bytes(tile, BF16, architecture("sm_80")) == 98304
    tile = TritonTile(256, 128, 64, 8, 2)
    assert shared_memory_bytes(tile, BF16, architecture("gfx942")) == 49152
    assert shared_memory_bytes(tile, BF16, architecture("gfx950")) == 98304


def test_default_is_one_of_the_valid_tiles() -> None:
    chosen = tile_of(Configuration(), BF16, architecture("sm_90"))
    assert chosen == TritonTile(128, 256, 64, 8, 3)
    assert chosen in valid_tiles(BF16, architecture("sm_90"))
    named = Configuration("tile_64x64x64_warps4_stages4_group8")
    assert tile_of(named, BF16, architecture("sm_90")) == TritonTile(64, 64, 64, 4, 4)


@pytest.mark.parametrize(
    ("shape", "largest_m", "largest_n"),
    [
        ("16x4096x4096", 16, 64),
        ("64x4096x4096", 64, 256),
        ("512x512x512", 64, 64),
        ("1x1x1", 16, 64),
    ],
)
def test_default_fits_the_shape(shape: str, largest_m: int, largest_n: int) -> None:
    operation = parse_operation(f"matmul_{shape}_bf16t_bf16n_bf16t")
    tile = choose(operation, architecture("sm_90"))
    assert tile.block_m <= largest_m and tile.block_n <= largest_n


def test_default_is_persistent_where_that_was_measured_to_be_faster() -> None:
    def method(name: str, where: str = "sm_90") -> tuple[str, int]:
        tile = choose(parse_operation(f"matmul_{name}"), architecture(where))
        return tile.method, tile.block_n

    for dtype in ("bf16", "f16"):
        assert method(f"2048x4096x4096_{dtype}t_{dtype}n_{dtype}t") == (PERSISTENT, 256)
    assert method("2048x4096x4096_e4m3t_e4m3n_bf16t") == (PERSISTENT, 128)
    for other in (
        "2048x4096x4096_bf16t_bf16t_bf16t",  # B is contiguous along N
        "1024x4096x4096_bf16t_bf16n_bf16t",
        "2048x4096x4097_bf16t_bf16n_bf16t",  # rows of no multiple of 16 bytes
        "2048x4096x4096_tf32t_tf32n_f32t",
        "2048x4096x4096_s8t_s8n_s32t",
    ):
        assert method(other)[0] != PERSISTENT, other
    for where in ("sm_80", "sm_100"):
        assert method("2048x4096x4096_bf16t_bf16n_bf16t", where)[0] != PERSISTENT


def test_interpreted_tiles_are_small() -> None:
    assert choose(BF16, None).block_m <= 32
