from __future__ import annotations

import struct

import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.hardware.cuda_plans import Boxes, Pointer, Tiles
from gemmetry.providers.user_provider.cuda_manifest import (
    MapArgument,
    StructArgument,
    argument_bytes,
    argument_for,
    parse_expression,
)

NAMES = {"M": 96, "N": 64, "K": 40, "BATCH": 1, "SLICES": 1}
OPERATION = parse_operation("matmul_96x64x40_bf16n_bf16n_f32t")


def _box(*sizes):
    return tuple(map(parse_expression, sizes))


def _struct(*members):
    return StructArgument(tuple((kind, parse_expression(text)) for kind, text in members))


@pytest.mark.parametrize(
    ("tensor", "role", "element", "extents"),
    [
        ("A", "lhs", "bf16", (96, 40)),  # column-major: neighbours differ in their row
        ("B", "rhs", "bf16", (40, 64)),
        ("C", "result", "f32", (64, 96)),
    ],
)
def test_the_contiguous_axis_of_a_map_comes_first(tensor, role, element, extents) -> None:
    argument = MapArgument(tensor, _box(8, "K // 10"), 64, 128)
    boxes = Boxes(
        element=element, extents=extents, box=(8, 4), swizzle_bytes=64, promotion_bytes=128
    )
    assert argument_for(argument, OPERATION, NAMES) == Tiles(role, boxes)


def test_a_map_may_have_an_axis_for_the_batch() -> None:
    operation = parse_operation("batch_matmul_3x96x64x48_e4m3t_e4m3n_f32t")
    batched = argument_for(MapArgument("B", _box(16, 8, 1)), operation, NAMES)
    assert isinstance(batched, Tiles)
    assert (batched.boxes.element, batched.boxes.extents) == ("u8", (48, 64, 3))
    single = argument_for(MapArgument("B", _box(16, 8, 1)), OPERATION, NAMES)
    assert isinstance(single, Tiles) and single.boxes.extents == (40, 64, 1)


@pytest.mark.parametrize(
    ("argument", "operation", "reason"),
    [
        (MapArgument("bias", _box(8)), OPERATION, "does not have"),
        (MapArgument("A", _box(8)), OPERATION, "lacks an axis"),
        (MapArgument("A", _box(8, 257)), OPERATION, "8 × 257; 1 to 256"),
        (MapArgument("A", _box(64, 8), 64), OPERATION, "has 128 bytes, and the swizzle 64"),
        (
            MapArgument("A", _box(8, 8)),
            parse_operation("matmul_96x64x41_bf16t_bf16n_f32t"),
            "multiple of 16 bytes; they have 82",
        ),
        (
            MapArgument("A", _box(8, 8)),
            parse_operation("matmul_96x64x64_e2m1t_e2m1n_f32t_vs32_e8m0"),
            "no tensor maps of e2m1",
        ),
        (_struct(("int", "M * 100000000")), OPERATION, "does not fit an int"),
        (_struct(("int64", "M * 10000000000 * 10000000000")), OPERATION, "fit an int64"),
    ],
)
def test_what_cannot_be_passed_is_refused(argument, operation, reason) -> None:
    with pytest.raises(ValueError, match=reason):
        argument_for(argument, operation, NAMES)


def test_integers_of_a_struct_lie_as_in_c() -> None:
    mixed = _struct(("int", "M"), ("int64", "N * 4294967296"), ("int", "K"))
    assert argument_bytes(mixed) == 24
    assert argument_for(mixed, OPERATION, NAMES) == struct.pack("<iiqii", 96, 0, 64 << 32, 40, 0)
    assert argument_for(_struct(("int64", "K")), OPERATION, NAMES) == struct.pack("<q", 40)
    assert argument_bytes(_struct(("int", "M"), ("int", "N"), ("int", "K"))) == 12


def test_sizes_are_those_of_the_parameters() -> None:
    kinds = ["A", "alpha", parse_expression("M"), MapArgument("A", _box(8, 8))]
    assert [argument_bytes(one) for one in kinds] == [8, 4, 4, 128]
    assert argument_for("A", OPERATION, NAMES) == Pointer("lhs")
    assert argument_for("bias", OPERATION, NAMES) is None
