from __future__ import annotations

import ast

import numpy as np
import pytest

from gemmetry.documents.operator_models import operator_model
from gemmetry.documents.operator_tables import (
    backward_calls,
    joined,
    operator_calls,
    performance_tables,
    speeds,
)
from gemmetry.formats.events import OperatorArguments

ADD = "void at::native::vectorized_elementwise_kernel<4>"


def _cells(trace, *parts):
    tables = performance_tables(trace, joined(parts))
    return {
        table.name: [dict(zip(table.names, row, strict=True)) for row in table.rows]
        for table in tables
        if table.rows
    }


def _model(name="aten::add", shapes="[[1000],[1000]]", dtypes='["float","float"]'):
    return operator_model(name, OperatorArguments(shapes, dtypes))


def test_speeds_are_amount_over_time():
    model = _model()
    calls = np.array([0, 0, 1, 1, 0])
    (of_first, of_second, unknown) = speeds(
        [model, None, _model(dtypes="[]")], calls, np.array([1000, 2000, 5, 5, 0])
    )
    assert of_first[:5] == pytest.approx([9e-3, 9e-3, 2**0.5 * 3e-3, 6e-3, 12e-3])
    assert of_first[5:] == pytest.approx([0.75e-3, 0.75e-3, 2**0.5 * 0.25e-3, 0.5e-3, 1e-3])
    assert of_second == unknown == (None,) * 10


def test_calls_within_calls_have_rows_of_their_own(recording):
    made = recording()
    outer, inner = "aten::layer_norm", "aten::native_layer_norm"
    for number in range(2):
        at = 10_000 * number
        args = {"shapes": [[64, 32], [], [32], [32]], "dtypes": ["float", "ScalarList", "float"],
                "values": ["", "[32]", "", ""]}  # fmt: skip
        made.operator(outer, at, 900, **args, external=number + 1)
        made.operator(inner, at + 10, 800, **args)
        made.call(2 * number + 1, at + 20)
        made.kernel("layer_norm_kernel", at + 1000, 300, correlation=2 * number + 1)
        made.call(2 * number + 2, at + 40)
        made.memset(at + 1200, 200 + 100 * number, correlation=2 * number + 2)
    # On the host alone: it has no row.
    made.operator("aten::layer_norm", 50_000, 900, shapes=[[8, 32]], values=["", "[32]"])
    trace = made.trace()
    rows = _cells(trace, operator_calls(trace))["Normalization"]
    assert [row["name"] for row in rows] == ["aten::layer_norm", "aten::native_layer_norm"]
    for row in rows:
        assert row["name_count"] == 2
        assert row["Kernel Time (µs)_sum"] == pytest.approx(0.4 + 0.5)
        assert row["param: num_channels"] == 32
        kernels = ast.literal_eval(row["kernel_details__summarize_kernel_stats"])
        assert [kernel["count"] for kernel in kernels] == [2, 2]
    assert rows[0]["UID_first"] == 1


def test_a_call_within_one_of_its_name_counts_for_both(recording):
    made = recording()
    args = {"shapes": [[8], [8]], "dtypes": ["float", "c10::BFloat16"]}
    made.operator("aten::copy_", 0, 900, **args)
    made.operator("aten::copy_", 10, 800, **args)
    made.launch(ADD, 1, at=100, lasts=50)
    trace = made.trace()
    calls = operator_calls(trace)
    assert calls.busy_ns.tolist() == [50, 50]
    (row,) = _cells(trace, calls)["UnaryElementwise"]
    assert row["name_count"] == 2


def _backward(made):
    name = "autograd::engine::evaluate_function: MeanBackward0"
    made.operator(name, 5000, 900, thread=2, sequence=7, forward_thread=1)
    made.operator("aten::div", 5010, 500, thread=2, shapes=[[8, 4], []], dtypes=["float"] * 2)
    made.call(2, 5100, thread=2)
    made.kernel(ADD, 6000, 70, correlation=2)


def _forward(made, **args):
    made.operator(
        "aten::mean", 0, 900, shapes=[[8, 4], []], dtypes=["float", ""], values=["", ""], **args
    )
    made.launch("reduce_kernel", 1, at=100, lasts=50)


def test_a_backward_pass_is_found_through_its_forward_operator(recording):
    made = recording()
    # This one records the number of the next operator that autograd remembers, and is not that
    # operator.
    made.operator("aten::empty", -10, 5, sequence=7)
    _forward(made, sequence=7)
    _backward(made)
    trace = made.trace()
    cells = _cells(trace, operator_calls(trace), backward_calls(trace))
    assert set(cells) == {"Reduce_fwd", "Reduce_bwd", "BinaryElementwise"}
    (forward,), (backward,) = cells["Reduce_fwd"], cells["Reduce_bwd"]
    assert forward["name"] == backward["name"] == "aten::mean"
    assert forward["Kernel Time (µs)_sum"] == pytest.approx(0.05)
    assert backward["Kernel Time (µs)_sum"] == pytest.approx(0.07)
    assert "vectorized" in backward["kernel_details__summarize_kernel_stats"]


@pytest.mark.parametrize(
    ("forward", "inner", "busy_ns"),
    [(6, 7, [70]), (None, None, []), (8, None, []), (6, None, [])],
    ids=["within the one that is known", "no number", "a later number", "an earlier number"],
)
def test_the_number_leads_to_the_forward_operator(recording, forward, inner, busy_ns):
    made = recording()
    _forward(made, **({} if forward is None else {"sequence": forward}))
    if inner is not None:
        made.operator("aten::inner", 20, 100, sequence=inner)
    _backward(made)
    assert backward_calls(made.trace()).busy_ns.tolist() == busy_ns
