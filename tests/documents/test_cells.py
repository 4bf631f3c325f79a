from __future__ import annotations

import ast

import numpy as np

from gemmetry.documents.operator_tables import argument_text, kernel_lists


def test_arguments_are_python_literals():
    text = '[[16, 64], [5], [], "Scalar", null]'
    assert argument_text(text) == "((16, 64), (5,), (), 'Scalar', None)"
    assert ast.literal_eval(argument_text(text, as_tuple=False))[0] == [16, 64]
    assert argument_text("") is None
    assert argument_text("[1, ") == "[1, "
    assert argument_text("[" * 100_000)


def test_what_multiplies_comes_first_and_fills_last(recording):
    made = recording()
    made.memset(0, 900)
    made.kernel("elementwise", 1000, 500)
    for number in range(2):
        made.kernel("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64", 2000 + number, 20)
    made.kernel("without an owner", 3000, 10)
    trace = made.trace()
    (whole, short), other = kernel_lists(trace, np.array([0, 0, 0, 0, -1]), 2)
    assert other == ("[]", "[]")
    assert kernel_lists(trace, np.full(5, -1), 2) == [other] * 2
    entries = ast.literal_eval(whole)
    assert [entry["name"][:8] for entry in entries] == ["sm90_xmm", "elementw", "Memset ("]
    assert entries[0]["count"] == 2
    assert entries[0]["total_duration_us"] == 0.04
    assert entries[0]["std_dev_duration_us"] == 0
    assert [e["mean_duration_us"] for e in ast.literal_eval(short)] == [0.02, 0.5, 0.9]


def test_a_list_too_long_for_a_cell_is_cut_between_entries(recording):
    made = recording()
    for number in range(40):
        made.kernel(f"{number:02d}" + "x" * 100_000, number * 100, 10 + number)
    trace = made.trace()
    whole, short = kernel_lists(trace, np.zeros(40, np.int64), 1)[0]
    for text in (whole, short):
        assert len(text) <= 32_767
        assert ast.literal_eval(text)
    assert ast.literal_eval(whole)[0]["name"].startswith("39")
