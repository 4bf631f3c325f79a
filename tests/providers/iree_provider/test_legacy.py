"""The old dispatch profiler's listing: 109 default dispatches, counted when its generator ran."""

from __future__ import annotations

from collections import Counter

from gemmetry.domain.names import parse_operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.iree_provider.configurations import tiles_for
from gemmetry.providers.iree_provider.legacy import (
    LegacyTile,
    legacy_dispatches,
    legacy_operations,
    legacy_tiles,
)

SM_80 = Target(TargetKind.CUDA, "sm_80", None)


def test_the_default_dispatches_are_the_109_of_the_old_profiler():
    dispatches = list(legacy_dispatches())
    assert len({dispatch.name for dispatch in dispatches}) == len(dispatches) == 109
    kinds = Counter(dispatch.operation.kind.value for dispatch in dispatches)
    assert kinds == {"matmul": 66, "matmul_splitk": 36, "batch_matmul": 7}
    types = Counter(
        (d.operation.kind.value, d.operation.signature.lhs.name, d.operation.signature.result.name)
        for d in dispatches
    )
    assert types == {
        ("matmul", "f16", "f16"): 20,
        ("matmul", "f32", "f32"): 26,
        ("matmul", "f16", "f32"): 20,
        ("matmul_splitk", "f16", "f16"): 15,
        ("matmul_splitk", "f32", "f32"): 21,
        ("batch_matmul", "f16", "f16"): 3,
        ("batch_matmul", "f32", "f32"): 4,
    }


def test_it_has_17_operations_and_one_more_dispatch_of_each_with_the_default():
    assert len(list(legacy_operations())) == 17
    assert len(list(legacy_dispatches(with_default=True))) == 109 + 17


def test_the_documents_dispatches_are_among_them():
    names = {dispatch.name for dispatch in legacy_dispatches()}
    assert "matmul_3456x1024x2048_f16t_f16t_f16t_tile_config_128x128_32x5_tensorcore_mmasync" in (
        names
    )
    assert "matmul_3456x1024x2048_f32t_f32t_f32t_tile_config_128x128_16x5_tensorcore_mmasync" in (
        names
    )


def test_todays_compiler_can_be_given_every_one_of_them():
    for dispatch in legacy_dispatches():
        tile = LegacyTile(*dispatch.configuration.parameters.values())
        assert tile.problem(dispatch.operation) is None, dispatch.name
        assert tile.name in {tile.name for tile in tiles_for(dispatch.operation, SM_80)}


def test_the_old_filter_counts_all_stages_of_both_operands():
    operation = parse_operation("matmul_256x512x128_f16t_f16t_f16t")
    tile = LegacyTile(128, 128, 64, 4)
    # (128 * 64 + 64 * 128) * 2 bytes * 4 stages = 128 KiB: fits sm_80 (163), not sm_86 (99).
    assert tile.old_problem(operation, "sm_80") is None
    assert "131072 bytes" in tile.old_problem(operation, "sm_86")
    assert "does not divide n=512 by 192" in LegacyTile(128, 192, 32, 3).old_problem(operation)
    assert len(list(legacy_tiles(operation, "sm_86"))) < len(list(legacy_tiles(operation)))


def test_the_translation_says_what_no_longer_exists():
    half = parse_operation("matmul_256x512x128_f16t_f16t_f16t")
    single = parse_operation("matmul_256x512x128_f32t_f32t_f32t")
    tile = LegacyTile(128, 128, 32, 5)
    lowered = tile.lowering(half)
    assert "workgroup = [128, 128, 0]" in lowered.compilation_info
    assert "subgroup = [4, 8, 0]" in lowered.compilation_info
    assert lowered.notes == ("the pipeline depth 5 of the old configuration no longer exists",)
    plain = tile.lowering(single)
    assert "thread = [16, 8, 0]" in plain.compilation_info
    assert "workgroup_size = [128, 1, 1]" in plain.compilation_info
    assert "no tensor-core instruction for f32" in plain.notes[1]


def test_the_wide_tiles_keep_their_eight_warps():
    operation = parse_operation("matmul_256x512x128_f16t_f16t_f16t")
    for tile in (LegacyTile(256, 128, 32, 3), LegacyTile(128, 256, 32, 3)):
        assert "workgroup_size = [256, 1, 1]" in tile.lowering(operation).compilation_info
