from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.verification.guess import MAX_COLUMNS, MAX_ROWS, error_map

SMALL = parse_operation("matmul_300x520x16_f32t_f32t_f32t")


def marked(operation, *places):
    m, n, _, batch = operation.matmul_shape
    bad = np.zeros((batch * m, n), dtype=bool)
    for place in places:
        bad[place] = True
    return bad


def test_a_character_is_a_tile():
    bad = marked(SMALL, np.s_[256:], np.s_[64:128, 100:200], (0, 0))
    assert error_map(SMALL, bad, tile=(64, 32, 16)) == (
        "each character is a tile of 64 × 32; the result is 300 × 520",
        "1................",
        "...8##2..........",
        ".................",
        ".................",
        "#################",
    )


@pytest.mark.parametrize(
    ("share", "character"),
    [(0, "."), (1, "1"), (10, "1"), (20, "2"), (55, "5"), (99, "9"), (100, "#")],
)
def test_characters_are_tenths(share, character):
    operation = parse_operation("matmul_10x20x16_f32t_f32t_f32t")
    bad = marked(operation)
    bad[:, :10].flat[:share] = True
    bad[:, :10] = np.roll(bad[:, :10], 3, axis=0)
    bad[:, 10:] = True
    assert error_map(operation, bad, tile=(10, 10, 1))[1] == character + "#"


@pytest.mark.parametrize("tile", [None, (128, 256, 64), (7, 5, 3), (1, 1, 1)])
@pytest.mark.parametrize("shape", ["8192x4096", "1x100000", "100000x1", "33x65"])
def test_large_results_are_coarsened(tile, shape):
    operation = parse_operation(f"matmul_{shape}x16_f32t_f32t_f32t")
    bad = marked(operation, (0, 0), (-1, -1))
    caption, *lines = error_map(operation, bad, tile=tile)
    assert len(lines) <= MAX_ROWS and all(len(line) <= MAX_COLUMNS for line in lines)
    assert len({len(line) for line in lines}) == 1
    assert lines[0][0] != "." and lines[-1][-1] != "."
    assert sum(len(line) - line.count(".") for line in lines) == (1 if lines == ["1"] else 2)
    assert caption.startswith("each character is ")


def test_caption_of_several_tiles():
    operation = parse_operation("matmul_8192x8192x16_f32t_f32t_f32t")
    caption = error_map(operation, marked(operation, (0, 0)), tile=(128, 64, 16))[0]
    assert caption.startswith("each character is 2 × 2 tiles of 128 × 64;")


def test_first_wrong_member_of_a_batch_is_drawn():
    operation = parse_operation("batch_matmul_4x8x8x16_f32t_f32t_f32t")
    caption, *lines = error_map(operation, marked(operation, (8 + 3, 5), (31, 7)))
    assert caption.endswith("member 1 of the batch, 2 of 4 have wrong elements")
    assert lines[3] == ".....#.."
    assert [line for line in lines if "#" in line] == [lines[3]]


def test_without_errors_no_map_is_drawn():
    assert error_map(SMALL, marked(SMALL)) == ()
