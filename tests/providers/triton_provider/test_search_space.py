from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import parse_target
from gemmetry.domain.names import parse_operation
from gemmetry.providers.triton_provider.block_scaled import architecture_of
from gemmetry.providers.triton_provider.provider import search_space
from gemmetry.providers.triton_provider.tiles import parse_tile, valid_tiles, why_invalid

NAMES = (
    "matmul_4096x4096x4096_bf16t_bf16n_bf16t",
    "matmul_16x14336x4096_f16t_f16n_f16t",
    "matmul_4096x4096x4096_e4m3t_e4m3n_bf16t",
    "matmul_512x512x512_f32t_f32t_f32t",
    "matmul_512x512x512_s8t_s8n_s32t",
    "matmul_512x512x512_e4m3t_e4m3n_bf16t_vs1x128",
    "batch_matmul_4x512x512x512_bf16t_bf16t_bf16t",
)


@pytest.mark.parametrize("name", NAMES)
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
    operation = parse_operation(NAMES[0])
    hopper = architecture_of(parse_target("cuda-sm_90"))
    found = list(search_space(operation, hopper))
    assert len(found) > 5 * len(valid_tiles(operation, hopper))
    assert len({one.parameters.get("method") for one in found}) == 3


def test_tiles_much_larger_than_the_product_are_left_out():
    few = parse_operation("matmul_16x4096x4096_bf16t_bf16n_bf16t")
    hopper = architecture_of(parse_target("cuda-sm_90"))
    listed = {tile.name for tile in valid_tiles(few, hopper)}
    found = [one for one in search_space(few, hopper) if one.name not in listed]
    assert found
    assert {one.parameters["block_m"] for one in found} == {16}


def test_the_interpreter_has_only_the_listed_ones():
    operation = parse_operation("matmul_64x64x64_f32t_f32t_f32t")
    names = [one.name for one in search_space(operation, None)]
    assert names == [tile.name for tile in valid_tiles(operation, None)]
