from __future__ import annotations

import re

from gemmetry.dispatches.results import CSV_HEADER, csv_row, format_block

DOCUMENTED = """\
---------------------------------------------------------------- 
Dispatch      : matmul_3456x1024x2048_f16t_f16t_f16t_tile_config_128x128_32x5_tensorcore_mmasync
Provider      : IREE Codegen
OpKind        : OperationKind.Matmul
Operation     : matmul_3456x1024x2048_f16t_f16t_f16t
Configuration : tile_config_128x128_32x5_tensorcore_mmasync
Arguments     : --batch_count=1 --m=3456 --n=1024 --k=2048 --lhs=f16t --rhs=f16t --result=f16t
                --split_k_mode=N/A --split_k_slices=N/A
Verification  : SUCCESS
Runtime(ms)   : 0.062
GFLOPs        : 233798.62
"""  # noqa: W291 (the tool printed a blank behind the dashes)


def test_block_is_the_documented_one(small_result_set):
    assert format_block(small_result_set.records[:1]) == DOCUMENTED


def test_header_is_the_tools():
    assert CSV_HEADER == (
        "Provider", "op_kind", "Operation", "bytes", "flops", "batch_count", "m", "n", "k",
        "lhs", "rhs", "result", "split_k_mode", "split_k_slices", "Tile config", "Core class",
        "Instruction class", "Verification", "Runtime(ms)", "GFLOPs",
    )  # fmt: skip


def test_tile_columns_of_other_configurations(make_record):
    name = "matmul_8x8x8_f32t_f32t_f32t"
    assert csv_row(make_record(name))["Tile config"] == "Default"
    row = csv_row(make_record(name, "bm64_bn64"))
    assert (row["Tile config"], row["Core class"]) == ("bm64_bn64", "N/A")


def test_runtime_keeps_three_digits_of_very_short_launches(make_record):
    record = make_record("matmul_8x8x8_f32t_f32t_f32t", gflops=8.3)
    runtime = csv_row(record)["Runtime(ms)"]
    assert re.fullmatch(r"0\.000123\d*", runtime)
