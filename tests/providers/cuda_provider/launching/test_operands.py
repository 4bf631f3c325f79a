"""How operands are stored, and when they are packed."""

from __future__ import annotations

import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.providers.cuda_provider.kernel import StoredProduct, problem_of


def problem(name: str) -> StoredProduct:
    return problem_of(parse_operation(name))


def test_a_row_major_a_and_a_column_major_b_run_along_k() -> None:
    found = problem("matmul_64x128x256_bf16t_bf16n_bf16t")
    assert (found.m, found.n, found.k) == (64, 128, 256)
    assert not found.a.along_lines and not found.b.along_lines
    assert found.packings == () and found.workspaces == {}


def test_of_a_column_major_result_the_transpose_is_computed() -> None:
    found = problem("matmul_64x128x256_bf16t_bf16n_bf16n")
    assert found.is_transposed and (found.m, found.n) == (128, 64)
    assert (found.a.role, found.b.role) == ("rhs", "lhs")
    # Bᵀ (n, k) is stored as B is: along K.
    assert not found.a.along_lines and not found.b.along_lines


@pytest.mark.parametrize(
    ("layouts", "along"), [("tt", (0, 1)), ("tn", (0, 0)), ("nt", (1, 1)), ("nn", (1, 0))]
)
def test_directions_follow_the_layouts(layouts: str, along: tuple[int, int]) -> None:
    found = problem(f"matmul_64x128x256_f16{layouts[0]}_f16{layouts[1]}_f16t")
    assert (found.a.along_lines, found.b.along_lines) == tuple(map(bool, along))


def test_rows_of_no_multiple_of_16_bytes_are_packed() -> None:
    found = problem("matmul_33x65x129_bf16t_bf16t_bf16t")
    # A has rows of 129, B of 65 elements; the next multiples of 8 are 136 and 72.
    assert (found.a.padded_columns, found.b.padded_columns) == (136, 72)
    assert found.workspaces == {"packed_lhs": 33 * 136 * 2, "packed_rhs": 129 * 72 * 2}
    assert [launch.compilation.entry for launch in found.packings] == ["pack", "pack"]
    assert found.a.tiles(32, 64).buffer == "packed_lhs"
    assert found.a.tiles(32, 64).boxes.extents == (129, 33)
    assert found.a.tiles(32, 64).boxes.strides == (272,)
    assert found.is_stored_directly


def test_bytes_count_as_bytes() -> None:
    found = problem("matmul_32x32x24_e4m3t_e4m3n_bf16t")
    assert found.a.needs_packing and found.a.padded_columns == 32
    assert not problem("matmul_32x32x32_e4m3t_e4m3n_bf16t").a.needs_packing


def test_boxes_along_lines_are_turned() -> None:
    found = problem("matmul_64x128x256_bf16n_bf16n_bf16t")
    boxes = found.a.tiles(64, 32).boxes
    assert boxes.extents == (64, 256) and boxes.box == (64, 32)
