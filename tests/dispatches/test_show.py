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


def test_patterns(result_set):
    counts = {
        WRONG: 1, f"user:{WRONG}": 1, "*_tile_64x64_32": 22, "provider=null": 2,
        "re:crash|hang": 2, "257x129x65": 27, "*crashes,*hangs": 2, "*null:*": 2,
        "*iree*tile_64x64_32": 21,
    }  # fmt: skip
    records = result_set.records
    assert {pattern: len(matching_records(records, pattern)) for pattern in counts} == counts


def test_no_match_suggests_the_nearest(result_set, console_text):
    with pytest.raises(EmptySelectionError, match=WRONG):
        console_text(lambda c: show_dispatch(result_set, WRONG.replace("wrong", "wrnog"), c))
    with pytest.raises(RequestError, match="regular expression"):
        console_text(lambda c: show_dispatch(result_set, "re:(", c))


def test_an_excerpt_is_the_dispatchs_own_function():
    """Not one whose name begins alike."""
    name = "matmul_8x8x8_f32t_f32t_f32t"
    functions = [f"func.func @{name}_{own}(\n  %lhs) {{\n  the body of {own}\n}}\n"
                 for own in ("default", "tile4x4", "tile4")]  # fmt: skip
    text = f"// {name}\n" + "\n#config = #some.attribute\n".join(functions)
    for own, first in (("default", 1), ("tile4x4", 5), ("tile4", 11)):
        start, lines = source_excerpt(text, f"{name}_{own}")
        assert abs(start - first) <= 2
        assert lines[-1] == "}" and lines.count("}") == 1
        assert f"  the body of {own}" in lines


def text_with(*at: int) -> str:
    return "\n".join(f"\tfma.rn.f32 {i}" if i in at else f"\tmov {i}" for i in range(100))


def test_without_a_matrix_instruction_plain_products_are_looked_for():
    start, lines = machine_code_excerpt(text_with(60, 61), "none")
    assert start <= 60 and "\tfma.rn.f32 61" in lines
    assert machine_code_excerpt(text_with(5), None)[1]
    assert machine_code_excerpt("\tret", "wgmma") == (0, [])
    # The kind of register is not looked for.
    line = "\tvfmadd231ps (%rax), %zmm1, %zmm2"
    assert machine_code_excerpt(line, "vfmadd231ps zmm") == (0, [line])
