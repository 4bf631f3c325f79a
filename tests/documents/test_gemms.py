from __future__ import annotations

import ast

import pytest

from gemmetry.documents.operator_tables import gemm_calls, performance_tables

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
BF16 = "c10::BFloat16"


def test_a_call_with_a_fill_is_one_row_whose_first_kernel_multiplies(recording):
    made = recording()
    for number in range(3):
        start = 10_000 * number
        made.operator(
            "aten::mm", start, 900, shapes=[[64, 32], [32, 16]], dtypes=[BF16, BF16],
            strides=[[32, 1], [1, 32]], values=["", ""], external=number + 5,
        )  # fmt: skip
        made.call(2 * number + 1, start + 10)
        made.memset(start + 1000, 100, correlation=2 * number + 1)
        made.call(2 * number + 2, start + 50)
        made.kernel(GEMM, start + 2000, 400 + 100 * number, correlation=2 * number + 2)
    trace = made.trace()
    calls = gemm_calls(trace)
    assert calls.busy_ns.tolist() == [500, 600, 700]
    table = performance_tables(trace, calls)[0]
    assert table.name == "GEMM"
    (row,) = table.rows
    cells = dict(zip(table.names, row, strict=True))
    expected = {
        "param: M": 64, "param: N": 16, "param: K": 32, "param: B": 1, "UID_first": 5,
        "param: stride_B": "(1, 32)", "param: transpose": "(True, False)", "name_count": 3,
        "Kernel Time (µs)_mean": pytest.approx(0.6), "Kernel Time (µs)_sum": pytest.approx(1.8),
    }  # fmt: skip
    assert {name: cells[name] for name in expected} == expected
    first = ast.literal_eval(cells["kernel_details__summarize_kernel_stats"])[0]
    assert first["name"] == GEMM


def test_a_trace_without_shapes_has_no_rows(recording):
    made = recording()
    made.operator("aten::mm", 0, 900)
    made.launch(GEMM, 1, at=500, lasts=10)
    trace = made.trace()
    assert not any(table.rows for table in performance_tables(trace, gemm_calls(trace)))
