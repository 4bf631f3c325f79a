"""The old dispatch profiler's tiles, counted from a run of its generator (109 in all); that
`gemmetry generate` makes these dispatches is pinned in tests/cli/expected/generate.txt."""

from __future__ import annotations

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.providers.iree_provider.tiling import LegacyTile, legacy_tiles, tiles_for

SM_80 = Target(TargetKind.CUDA, "sm_80", None)


MATMULS = [
    f"matmul_{shape}_{types}"
    for types in ("f16t_f16t_f16t", "f32t_f32t_f32t", "f16t_f16t_f32t")
    for shape in ("256x512x128", "2560x2560x2560", "3456x1024x2048")
]
SPLIT_KS = [
    f"matmul_splitk_128x128x12288_{types}_slices{slices}"
    for types in ("f16t_f16t_f16t", "f32t_f32t_f32t")
    for slices in (2, 4, 16)
]
BATCHES = [f"batch_matmul_16x512x64x512_{types}" for types in ("f16t_f16t_f16t", "f32t_f32t_f32t")]


def tiles_of(names: list[str]) -> list[tuple[Operation, LegacyTile]]:
    return [
        (operation, tile)
        for operation in map(parse_operation, names)
        for tile in legacy_tiles(operation)
    ]


def test_the_old_profilers_operations_have_its_109_tiles():
    assert len(MATMULS) + len(SPLIT_KS) + len(BATCHES) == 17
    assert [len(tiles_of(names)) for names in (MATMULS, SPLIT_KS, BATCHES)] == [66, 36, 7]
    half, single, mixed = MATMULS[:3], MATMULS[3:6], MATMULS[6:]
    assert [len(tiles_of(names)) for names in (half, single, mixed)] == [20, 26, 20]
    assert [len(tiles_of(names)) for names in (SPLIT_KS[:3], SPLIT_KS[3:])] == [15, 21]
    assert [len(tiles_of([name])) for name in BATCHES] == [3, 4]


def test_todays_compiler_can_be_given_every_one_of_them():
    for operation, tile in tiles_of([*MATMULS, *SPLIT_KS, *BATCHES]):
        assert tile.problem(operation) is None, f"{operation}: {tile.name}"
        assert tile.name in {tile.name for tile in tiles_for(operation, SM_80)}


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
