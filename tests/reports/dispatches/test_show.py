from __future__ import annotations

import pytest

from gemmetry.dispatches.show import (
    machine_code_excerpt,
    matching_records,
    show_dispatch,
    source_excerpt,
)
from gemmetry.domain.errors import EmptySelectionError, RequestError

WRONG = "matmul_512x512x512_f32t_f32t_f32t_wrong"


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        (WRONG, 1),
        (f"user:{WRONG}", 1),
        ("*_tile_64x64_32", 22),
        ("provider=null", 2),
        ("re:crash|hang", 2),
        ("257x129x65", 27),
        ("*crashes,*hangs", 2),
        ("*null:*", 2),
        ("*iree*tile_64x64_32", 21),
    ],
)
def test_patterns(result_set, pattern, count):
    assert len(matching_records(result_set.records, pattern)) == count


def test_no_match_suggests_the_nearest(result_set, console_text):
    with pytest.raises(EmptySelectionError, match=WRONG):
        console_text(lambda c: show_dispatch(result_set, WRONG.replace("wrong", "wrnog"), c))
    with pytest.raises(RequestError, match="regular expression"):
        console_text(lambda c: show_dispatch(result_set, "re:(", c))


_MLIR = """\
// matmul_8x8x8_f32t_f32t_f32t
func.func @matmul_8x8x8_f32t_f32t_f32t_default(
    %lhs: tensor<8x8xf32>) {
}

#config = #some.attribute
func.func @matmul_8x8x8_f32t_f32t_f32t_tile4x4(
    %lhs: tensor<8x8xf32>) {
  the body of tile4x4
}

func.func @matmul_8x8x8_f32t_f32t_f32t_tile4(
    %lhs: tensor<8x8xf32>) {
  the body of tile4
}
"""


@pytest.mark.parametrize(
    ("configuration", "first", "words"),
    [("default", 1, "@matmul_8x8x8_f32t_f32t_f32t_default("), ("tile4", 11, "body of tile4"),
     ("tile4x4", 5, "body of tile4x4")],
)  # fmt: skip
def test_an_excerpt_is_the_dispatchs_own_function(configuration, first, words):
    start, lines = source_excerpt(_MLIR, f"matmul_8x8x8_f32t_f32t_f32t_{configuration}")
    assert start == first
    assert lines[-1] == "}" and lines.count("}") == 1
    assert words in "\n".join(lines)


def text_with(word: str, *at: int, lines: int = 100) -> str:
    return "\n".join(f"\t{word} {i}" if i in at else f"\tmov {i}" for i in range(lines))


def test_the_kind_of_register_is_not_looked_for():
    assert machine_code_excerpt("\tvfmadd231ps (%rax), %zmm1, %zmm2", "vfmadd231ps zmm") == (
        0, ["\tvfmadd231ps (%rax), %zmm1, %zmm2"],
    )  # fmt: skip


def test_without_a_matrix_instruction_plain_products_are_looked_for():
    start, lines = machine_code_excerpt(text_with("fma.rn.f32", 60, 61), "none")
    assert start <= 60 and "\tfma.rn.f32 61" in lines
    assert machine_code_excerpt(text_with("fma.rn.f32", 5), None)[1]
    assert machine_code_excerpt("\tret", "wgmma") == (0, [])
