from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmetry.documents.operator_models import (
    FAMILIES,
    has_backward_model,
    has_model,
    is_reported,
    operator_model,
)
from gemmetry.formats.events import OperatorArguments

BF16 = "c10::BFloat16"
NAMES = [name for family in FAMILIES for name in family.operators]


def _model(name, shapes, dtypes=(), strides=(), values=(), *, backward=False):
    recorded = OperatorArguments(
        *(json.dumps(list(part)) for part in (shapes, dtypes, strides, values))
    )
    return operator_model(name, recorded, backward=backward)


def _convolution(shapes, values, name="aten::convolution"):
    place = 1 if name.endswith("backward") else 0
    dtypes = ["float"] * len(shapes)
    values = [""] * (3 + place) + values
    return _model(name, shapes + [[]] * (len(values) - len(shapes)), dtypes, (), values)


def test_a_convolution_with_a_bias():
    recorded = ["[2, 2]", "[1]", "[1, 1]", "False", "[0, 0]", "1"]
    model = _convolution([[8, 3, 32, 32], [16, 3, 3, 3], [16]], recorded)
    out = 8 * 16 * 16 * 16
    assert model.flops == 2 * out * 27 + out
    assert model.bytes == 4 * (8 * 3 * 1024 + 16 * 27 + 16 + out)
    assert model.sheet == "CONV_fwd"
    assert model.spec == "matrix_fp32"
    assert model.cells["convNd"] == "conv2d"
    assert model.cells["padding"] == "(1, 1)"
    assert model.cells["bias"] is True


def test_a_transposed_convolution_undoes_a_plain_one():
    # A plain one from (4, 6, 9) to (4, 8, 5) with a window of 3, steps of 2 and padding 1.
    plain = _convolution([[4, 6, 9], [8, 3, 3]], ["[2]", "[1]", "[1]", "False", "[0]", "2"])
    back = _convolution([[4, 8, 5], [8, 3, 3]], ["[2]", "[1]", "[1]", "True", "[0]", "2"])
    assert plain.flops == back.flops == 2 * (4 * 8 * 5) * (3 * 3)
    assert plain.bytes == back.bytes == 4 * (4 * 6 * 9 + 8 * 9 + 4 * 8 * 5)


@pytest.mark.parametrize(
    ("wanted", "products", "bias"),
    [("[True, True, False]", 2, 0), ("[False, True, True]", 1, 1), ("", 2, 1)],
)
def test_only_requested_gradients_count(wanted, products, bias):
    recorded = ["[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", wanted]
    x, w, out = [2, 4, 8, 8], [6, 4, 1, 1], [2, 6, 8, 8]
    model = _convolution([out, x, w], recorded, "aten::convolution_backward")
    n_x, n_w, n_out = 512, 24, 768
    assert model.flops == products * 2 * n_out * 4 + bias * n_out
    assert model.bytes == 4 * (products * (n_x + n_w + n_out) + bias * (n_out + 6))


def test_convolutions_of_impossible_sizes_are_not_known():
    recorded = ["[0, 0]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
    assert _convolution([[8, 3, 32, 32], [16, 3, 3, 3]], recorded) is None
    recorded = ["[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
    assert _convolution([[8, 3, 2, 2], [16, 3, 5, 5]], recorded) is None
    assert _convolution([[8, 3], [16, 3]], recorded) is None


def test_a_copy_has_two_types():
    model = _model("aten::copy_", [[10, 20], [10, 20], []], [BF16, "float", "Scalar"])
    assert (model.flops, model.bytes) == (200, 200 * (2 + 4))
    assert model.cells["dtype_in_out"] == f"('{BF16}', 'float')"
    assert model.spec == "vector_bf16"


def test_a_function_of_one_tensor_keeps_its_type():
    model = _model("aten::sigmoid", [[10, 20]], ["float"], [[20, 1]])
    assert (model.flops, model.bytes) == (200, 200 * 8)
    assert model.cells["stride_input"] == "(20, 1)"
    assert model.cells["stride_output"] is None


def test_results_that_are_larger_than_their_input():
    padded = _model("aten::replication_pad2d", [[1, 2, 4, 4], []], ["float"], (), ["", "[1,1,2,0]"])
    assert padded.cells["op_shape"] == "(1, 2, 6, 6)"
    assert padded.bytes == 4 * (32 + 72)
    assert padded.cells["padding"] == "(1, 1, 2, 0)"
    enlarged = _model(
        "aten::upsample_nearest2d", [[1, 2, 4, 4], []], ["float"], (), ["", "[8, 12]"]
    )
    assert enlarged.cells["output_shape"] == "(1, 2, 8, 12)"
    assert enlarged.flops == 192
    assert _model("aten::replication_pad2d", [[4]], ["float"], (), ["", "[1,1,1,1]"]) is None


def test_two_tensors_are_broadcast_and_the_wider_type_is_the_result():
    model = _model("aten::mul", [[16, 1, 8], [5, 8]], ["float", BF16])
    assert model.flops == 16 * 5 * 8
    assert model.bytes == 4 * 128 + 2 * 40 + 4 * 640
    assert _model("aten::mul", [[3], [4]], ["float", "float"]) is None


@pytest.mark.parametrize("swapped", [False, True])
def test_a_scalar_does_not_widen_the_result(swapped):
    shapes, dtypes = [[100], []], [BF16, "double"]
    if swapped:
        shapes, dtypes = shapes[::-1], dtypes[::-1]
    model = _model("aten::mul", shapes, dtypes)
    assert (model.flops, model.bytes) == (100, 200 + 8 + 200)
    assert model.spec == "vector_bf16"


def test_a_third_tensor_is_the_result():
    model = _model("aten::mul", [[100], [100], [100]], [BF16, BF16, "float"])
    assert model.bytes == 200 + 200 + 400


@pytest.mark.parametrize(
    ("name", "values", "results"),
    [
        ("aten::sum", ["", "[-1]", "True", ""], 6),
        ("aten::sum", ["", "[]", "False", ""], 1),
        ("aten::mean", ["", ""], 1),
        ("aten::linalg_norm", ["", "2", "[0, 2]", "True", ""], 3),
        ("aten::max", ["", "-1", "False"], 6),
        ("aten::cumsum", ["", "1", ""], 24),
    ],
)
def test_a_reduction_leaves_the_dimensions_that_it_does_not_reduce(name, values, results):
    model = _model(name, [[2, 3, 4], [], [], []], ["float"], (), values)
    assert model.cells["num_output_elems"] == results
    assert (model.flops, model.bytes) == (24, 4 * (24 + results))


def test_the_larger_of_two_tensors_is_not_a_reduction():
    assert _model("aten::max", [[4], [4]], ["float", "float"]) is None


def test_backward_passes_are_derived_from_forward_arguments():
    recorded = ([[8, 4], [], [], []], ["float"], (), ["", "[0]", "False", ""])
    forward = _model("aten::sum", *recorded)
    backward = _model("aten::sum", *recorded, backward=True)
    assert (forward.sheet, backward.sheet) == ("Reduce_fwd", "Reduce_bwd")
    assert forward[1:] == backward[1:]
    assert _model("aten::copy_", [[4]], ["float"], backward=True) is None
    assert has_backward_model("aten::sum")
    assert not has_backward_model("aten::copy_")


def test_which_operators_are_known():
    assert len(NAMES) == len(set(NAMES))
    assert all(has_model(name) and is_reported(name) for name in NAMES)
    assert is_reported("aten::addmm")
    assert not has_model("aten::addmm")
    assert not is_reported("aten::linear")
    assert _model("aten::relu", [[4]], ["float"]) is None


def test_without_types_there_are_no_bytes():
    model = _model("aten::add", [[4], [4]])
    assert model.flops == 4
    assert (model.bytes, model.mebibytes, model.intensity, model.spec) == (None,) * 4


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["[1, 1]", "[-1]", "True", "[True, False, True]", "1", "float", BF16]),
    lambda inner: st.lists(inner, max_size=5), max_leaves=20,
)  # fmt: skip
_SHAPES = st.lists(st.lists(st.integers(-1, 2**70) | st.integers(0, 9), max_size=5), max_size=12)


@given(
    st.sampled_from(NAMES), _SHAPES | _JSON, _JSON, _JSON,
    st.lists(_JSON, max_size=12), st.booleans(),
)  # fmt: skip
def test_damaged_arguments_give_no_models_or_plausible_ones(
    name, shapes, dtypes, strides, values, backward
):
    recorded = OperatorArguments(*map(json.dumps, (shapes, dtypes, strides, values)))
    model = operator_model(name, recorded, backward=backward)
    if model is not None:
        assert 0 <= model.flops < 2**140
        assert model.bytes is None or model.bytes >= 0
        assert {type(cell) for cell in model.cells.values()} <= {int, float, str, bool, type(None)}
        assert model.gflops >= 0
        assert hash(model) == hash(model._replace())


@given(st.text(max_size=20))
def test_arguments_that_are_not_json_are_not_known(text):
    recorded = OperatorArguments(text, text, text, text)
    assert operator_model("aten::convolution", recorded) is None
