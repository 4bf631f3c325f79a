"""Tables on a terminal: words stay whole, and no value is lost however narrow it is."""

from __future__ import annotations

from functools import partial

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
REASONS = ["needs 3 registers", "needs 44 registers", "no tile", "–", "no tile"]
PROVIDERS = ["asked", *(f"provider{n} on cuda-sm_{n}" for n in range(10, 20)), "operation"]
SWEEP = ["256 threads, 32 channels", "16384x16384 by nvjet_NNN", "3,228", "21 (15 to 27)", "3.70"]
CASES = {
    "grouped": (HEADINGS, ROWS, (60, 80, 100)),
    "whole": (HEADINGS, ROWS[:1], (120,)),
    "others": (["name", "text"], [["a", "b " * 60]], (40,)),
    "empty": ([], [], (40,)),
    "lines_of_values": (
        PROVIDERS, [["f64", *["yes"] * 9, "no product of f64", OPERATION],
                    ["f32", *["yes"] * 10, OPERATION]], (80, 100)),
    "long_words": (
        ["a", "b", "c"],
        [["name", "a-very-long-word-that-stays-whole and more", "some text " * 8]], (60,)),
    "many_columns": (
        ["operation", "configuration", *(f"some_column_{n}" for n in range(12)), "reason"],
        [[OPERATION, name, *["12345"] * 11, "–", "why not"] for name in ("default", "other")],
        (80,)),
    "alike": (HEADINGS, [["iree", OPERATION, f"c{i}", "wrong", "12", text]
                         for i, text in enumerate(REASONS)], (60,)),
    "too_wide": (["point", "slowed GEMM", "µs alone", "slower by %", "ms/step"], [SWEEP] * 2,
                 (40, 50, 64, 80)),
}  # fmt: skip


VERIFIED = {"configuration": "default", "trace_kernels": "0"}
GROUPED = (
    ([GroupedRow(operation="no operation",
                 cells={"configuration": "default", "A": "1", "none": "–"})], (80,)),
    # The default configuration gives way where there is no place for it.
    ([GroupedRow(operation=f"matmul_{size}x{size}x{size}_f32t_f32t_f32t",
                 cells={"trace_folder": folder, **VERIFIED, "outcome": outcome,
                        "trace_operators": operators, "verification": verified})
      for size, folder, outcome, operators, verified in (
          (64, "traces_matmul/config_0001", "ok", "8", "passed"),
          (128, "–", "unsupported", "–", "not_verified"))], (80, 100)),
)  # fmt: skip


def test_tables_are_as_reviewed(console_text, golden):
    tables = [(Table("t", tuple(map(Column, headings)), rows), widths)
              for headings, rows, widths in CASES.values()]  # fmt: skip
    texts = []
    for show, made in ((print_table, tables), (partial(print_grouped, right=["A"]), GROUPED)):
        for shown, widths in made:
            for width in widths:
                text = console_text(partial(show, shown), width)
                assert max(map(len, text.splitlines()), default=0) <= width
                texts.append(text)
    golden("terminal_tables", "\f\n".join(texts))
