"""Cells of the sheets of operators, whose rows are in ``test_recordings``."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from gemmetry.documents.operator_models import operator_model
from gemmetry.documents.operator_tables import (
    argument_text,
    kernel_lists,
    operator_category,
    speeds,
)
from gemmetry.formats.events import OperatorArguments


def test_arguments_are_python_literals():
    text = '[[16, 64], [5], [], "Scalar", null]'
    assert argument_text(text) == "((16, 64), (5,), (), 'Scalar', None)"
    assert ast.literal_eval(argument_text(text, as_tuple=False))[0] == [16, 64]
    assert argument_text("") is None
    assert argument_text("[1, ") == "[1, "
    assert argument_text("[" * 100_000)


def test_a_list_too_long_for_a_cell_is_cut_between_entries(recording):
    made = recording()
    for number in range(40):
        made.kernel(f"{number:02d}" + "x" * 100_000, number * 100, 10 + number)
    trace = made.trace()
    texts, of_nothing = kernel_lists(trace, np.zeros(40, np.int64), 2)
    for text in texts:
        assert len(text) <= 32_767
        assert ast.literal_eval(text)
    assert ast.literal_eval(texts[0])[0]["name"].startswith("39")
    assert of_nothing == ("[]", "[]")
    assert kernel_lists(trace, np.full(40, -1), 2) == [of_nothing] * 2


def test_speeds_are_amount_over_time():
    shapes = "[[1000],[1000]]"
    known, unknown = (
        operator_model("aten::add", OperatorArguments(shapes, dtypes))
        for dtypes in ('["float","float"]', "[]")
    )
    calls, ns = np.array([0, 0, 1, 1, 0]), np.array([1000, 2000, 5, 5, 0])
    (of_first, *others) = speeds([known, None, unknown], calls, ns)
    assert of_first[:5] == pytest.approx([9e-3, 9e-3, 2**0.5 * 3e-3, 6e-3, 12e-3])
    assert of_first[5:] == pytest.approx([0.75e-3, 0.75e-3, 2**0.5 * 0.25e-3, 0.5e-3, 1e-3])
    assert others == [(None,) * 10] * 2


CATEGORIES = {
    "aten::addmm": "GEMM", "aten::convolution_backward": "CONV_bwd",
    "aten::cudnn_convolution": "CONV_fwd", "aten::miopen_convolution": "CONV_fwd",
    "aten::native_layer_norm": "NORM_fwd", "aten::cudnn_batch_norm_backward": "NORM_bwd",
    "aten::_cudnn_attention_forward": "SDPA_fwd", "aten::_flash_attention_backward": "SDPA_bwd",
    "aten::_foreach_add_": "multi_tensor_apply", "aten::copy_, Memcpy DtoD": "elementwise",
    "aten::sum": "reduce", "triton_poi_fused_add_0": "triton",
    "record_param_comms": "record_param_comms",
    "aten::gelu, void at::native::vectorized_elementwise_kernel<4>": "elementwise",
    "aten::all, void at::native::reduce_kernel<512>": "reduce",
    "aten::_softmax, void cunn_SoftMaxForward<8>": "other",
    "mine::op, void reduce_elementwise": "other",
}  # fmt: skip
"""Operator and kernel -> category."""


def test_categories_are_those_of_tracelens():
    found = {}
    for name in CATEGORIES:
        operator, _, kernel = name.partition(", ")
        found[name] = operator_category(operator, kernel)
    assert found == CATEGORIES
