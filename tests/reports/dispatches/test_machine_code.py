from __future__ import annotations

from gemmetry.dispatches.show import EXCERPT_LINES, machine_code_excerpt


def text_with(word: str, *at: int, lines: int = 100) -> str:
    return "\n".join(f"\t{word} {i}" if i in at else f"\tmov {i}" for i in range(lines))


def test_the_densest_part_is_shown():
    text = text_with("wgmma.mma_async", 3, 50, 52, 54)
    start, lines = machine_code_excerpt(text, "wgmma")
    assert len(lines) == EXCERPT_LINES
    assert sum("wgmma" in line for line in lines) == 3
    assert lines[0] == f"\tmov {start}"


def test_the_kind_of_register_is_not_looked_for():
    assert machine_code_excerpt("\tvfmadd231ps (%rax), %zmm1, %zmm2", "vfmadd231ps zmm") == (
        0, ["\tvfmadd231ps (%rax), %zmm1, %zmm2"],
    )  # fmt: skip


def test_without_a_matrix_instruction_plain_products_are_looked_for():
    start, lines = machine_code_excerpt(text_with("fma.rn.f32", 60, 61), "none")
    assert start <= 60 and "\tfma.rn.f32 61" in lines
    assert machine_code_excerpt(text_with("fma.rn.f32", 5), None)[1]


def test_what_does_not_occur_is_not_shown():
    assert machine_code_excerpt("\tret", "wgmma") == (0, [])
    assert machine_code_excerpt("", "wgmma") == (0, [])
