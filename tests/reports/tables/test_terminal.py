from __future__ import annotations

import pytest

from gemmetry.dispatches.terminal import GroupedRow, print_grouped, print_table
from gemmetry.domain.tables import Column, Table

HEADINGS = ["provider", "operation", "configuration", "outcome", "max_error_ratio", "reason"]
OPERATION = "matmul_3456x1024x2048_f16t_f16t_f16t"
ROWS = [
    ["iree", OPERATION, "default", "ok", "0.03", "–"],
    ["iree", OPERATION, "tile_config_128x128_32x5_tensorcore_mmasync", "wrong", "12",
     "element 3 is 5, not 4; " * 6],
    ["iree", OPERATION, "tile_config_64x64_64x5_tensorcore_mmasync", "ok", "0.03", "–"],
]  # fmt: skip


def _table(headings, rows):
    return Table("t", tuple(map(Column, headings)), rows)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_wide_table_is_grouped_by_operation_within_the_width(console_text, width):
    text = console_text(lambda console: print_table(_table(HEADINGS, ROWS), console), width=width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert lines.count("matmul 3456×1024×2048  f16 tt") == 1
    assert OPERATION not in text
    assert sum(line.startswith("iree ") for line in lines) == 3
    assert "128x128_32x5" in text
    assert "    element 3 is 5, not 4;" in text


def test_what_fits_stays_one_table(console_text):
    text = console_text(lambda console: print_table(_table(HEADINGS, ROWS[:1]), console), width=120)
    assert text.splitlines()[0].split() == HEADINGS
    assert OPERATION in text.splitlines()[1]


def test_other_tables_are_never_grouped(console_text):
    text = console_text(
        lambda c: print_table(_table(["name", "text"], [["a", "b " * 60]]), c), width=40
    )
    assert text.startswith("name")
    assert console_text(lambda c: print_table(_table([], []), c)).strip() == ""


@pytest.mark.parametrize("width", [80, 100])
def test_words_are_never_broken_values_get_lines_instead(console_text, width):
    heads = ["asked", *(f"provider{n} on cuda-sm_{n}" for n in range(10, 20)), "operation"]
    rows = [
        ["f64", *["yes"] * 9, "no product of f64", OPERATION],
        ["f32", *["yes"] * 10, OPERATION],
    ]
    text = console_text(lambda console: print_table(_table(heads, rows), console), width=width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "provider19 on cuda-sm_19  no product of f64" in text
    assert len([line for line in lines if not line.strip()]) == 1
    assert "yes" in lines[1].split()


def test_a_table_that_fits_breaks_between_words(console_text):
    rows = [["name", "a-very-long-word-that-stays-whole and more", "some text " * 8]]
    text = console_text(
        lambda console: print_table(_table(["a", "b", "c"], rows), console), width=60
    )
    assert text.splitlines()[0].split() == ["a", "b", "c"]
    assert "a-very-long-word-that-stays-whole " in text


def test_dispatches_with_more_columns_than_fit_have_a_line_for_each_value(console_text):
    heads = ["operation", "configuration", *(f"some_column_{n}" for n in range(12)), "reason"]
    rows = [[OPERATION, name, *["12345"] * 11, "–", "why not"] for name in ("default", "other")]
    text = console_text(lambda console: print_table(_table(heads, rows), console), width=80)
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[0] == "matmul 3456×1024×2048  f16 tt"
    assert lines.count("  some column 0   12345") == 2
    assert "some column 11" not in text
    assert lines.count("    why not") == 2


def test_columns_without_values_are_left_out_and_numbers_stand_right(console_text):
    row = GroupedRow(
        operation="no operation",
        configuration="default",
        cells={"configuration": "default", "A": "1", "none": "–"},
    )
    text = console_text(lambda c: print_grouped([row], c, right=["A"]))
    assert text.splitlines() == ["configuration A", "no operation", "default       1"]


def test_the_default_configuration_gives_way_where_the_room_is_short(console_text):
    rows = [
        GroupedRow(
            operation=f"matmul_{size}x{size}x{size}_f32t_f32t_f32t",
            configuration="default",
            cells={"trace_folder": folder, "configuration": "default", "outcome": outcome,
                   "trace_operators": operators, "trace_kernels": "0", "verification": verified},
        )
        for size, folder, outcome, operators, verified in (
            (64, "traces_matmul/config_0001", "ok", "8", "passed"),
            (128, "–", "unsupported", "–", "not_verified"),
        )
    ]  # fmt: skip
    lines = console_text(lambda console: print_grouped(rows, console), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines[-3:]] == [
        ["traces_matmul/config_0001", "ok", "8", "0", "passed"],
        ["matmul", "128×128×128", "f32", "tt"],
        ["–", "unsupported", "–", "0", "not_verified"],
    ]
    wide = console_text(lambda console: print_grouped(rows, console), width=100)
    assert "default" in wide


def test_a_sentence_of_several_rows_is_shown_once_with_their_count(console_text):
    reasons = ["needs 3 registers", "needs 44 registers", "no tile", "–", "no tile"]
    rows = [["iree", OPERATION, f"c{i}", "wrong", "12", text] for i, text in enumerate(reasons)]
    text = console_text(lambda console: print_table(_table(HEADINGS, rows), console), width=60)
    rows = text.partition("f16 tt")[2].splitlines()
    assert [line.strip() for line in rows if line.startswith("    ")] == [
        "2 similar rows, the last: needs 44 registers", "no tile", "no tile"]  # fmt: skip


@pytest.mark.parametrize("width", [40, 50, 64, 80])
def test_no_value_is_cut_where_several_columns_are_too_wide(console_text, width):
    headings = ["point", "slowed GEMM", "µs alone", "with comm", "slower by %", "ms/step"]
    row = ["256 threads, 32 channels", "16384x16384 by nvjet_NNN", "3,228", "3,899"]
    row += ["21 (15 to 27)", "3.70"]
    table = _table(headings, [row, row])
    text = console_text(lambda console: print_table(table, console), width=width)
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    assert all(words.count(word) >= 2 * row.count(word) for cell in row for word in cell.split())
