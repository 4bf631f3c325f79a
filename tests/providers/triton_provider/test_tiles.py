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
    TritonTile,
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
