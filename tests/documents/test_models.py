"""Models of operators: the work and the bytes of calls, derived by hand; None: not known."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmetry.documents.operator_models import (
    FAMILIES,
    gemm_model,
    has_backward_model,
    has_model,
    is_reported,
    operator_model,
)
from gemmetry.formats.events import OperatorArguments
from gemmetry.traces.operators.gemms import gemm_shape

BF16, HALF, FP8 = "c10::BFloat16", "c10::Half", "c10::Float8_e4m3fn"
NAMES = [name for family in FAMILIES for name in family.operators]

FLASH = "_scaled_dot_product_flash_attention"
EFFICIENT = "_scaled_dot_product_efficient_attention"
PAIRS = 2 * 8 * 100 * 150
Q, K, V, OUT = (2 * 8 * n for n in (100 * 64, 150 * 64, 150 * 32, 100 * 32))
QKV = [[2, 8, 100, 64], [2, 8, 150, 64], [2, 8, 150, 32]]
SMALL = [[1, 2, 16, 8]] * 3
WHOLE, CAUSAL = ["", "", "", "0.", "False"], ["", "", "", "0.", "True"]
OTHER = ["", "", "", "", "", "", "", "", "", "0.0", "0.125", "True"]

X, N, C = [4, 8, 5, 5], 800, 8
TRAINING = ["", "", "", "", "", "True", "0.1", "1e-05"]
GIVEN = ["", "", "", "", "", "False", "0.1", "1e-05"]
LAYER = [[100, 8], [100, 8], [], [100], [100]]


def layers(wanted):
    return ["", "", "[8]", "", "", "", "", wanted]


SIZES = [[8, 3, 32, 32], [16, 3, 3, 3], [16]]
OUTPUT = 8 * 16 * 16 * 16


def convolution(stride, padding, dilation, transposed, added, groups, *wanted, lead=3):
    return [""] * lead + [stride, padding, dilation, transposed, added, groups, *wanted]


def gradients(*wanted):
    return convolution("[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", *wanted, lead=4)


LINE = ["[2]", "[1]", "[1]", "False", "[0]", "2"]
BACK = ["[2]", "[1]", "[1]", "True", "[0]", "2"]
ONES = ["[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
FILTERS = [[2, 6, 8, 8], [2, 4, 8, 8], [6, 4, 1, 1]]

# (operator, shapes, values, type of all tensors or their types, (flops, bytes), further facts)
CASES = [
    # Two products of attention; five and the gradients backward, half of it with a causal mask.
    (FLASH, QKV, ["", "", "", "0.1", "False"], HALF,
     (2 * PAIRS * (64 + 32), 2 * (Q + K + V + OUT)), {"dropout": 0.1, "spec": "matrix_fp16"}),
    (f"-{FLASH}", QKV, WHOLE, HALF,
     (2 * PAIRS * (3 * 64 + 2 * 32), 2 * (2 * (Q + K + V) + OUT)), {"sheet": "SDPA_bwd"}),
    (EFFICIENT, [[1, 1, 4, 4]] * 3, [*WHOLE, "0", "False"], "float",
     (2 * 16 * 8, 4 * 64), {"flash_impl": False}),
    (FLASH, SMALL, WHOLE, HALF, (2 * 2 * 256 * 16, 2 * 4 * 256), {}),
    (FLASH, SMALL, CAUSAL, HALF, (2 * 256 * 16, 2 * 4 * 256), {}),
    (FLASH, [[1, 2, 8, 8], *SMALL[:2]], CAUSAL, HALF, None, {}),
    # Heads of q that share one of k add up its gradient.
    (f"-{FLASH}", [[1, 8, 16, 4], [1, 2, 16, 4], [1, 2, 16, 4]], WHOLE, HALF,
     (2 * 8 * 16 * 16 * (5 * 4) + 16 * 3 * 8, None), {}),
    ("flash_attn::_flash_attn_backward", [[2, 10, 3, 16]] * 6, OTHER, HALF,
     (2 * 3 * 10 * 10 * (5 * 16), None), {"sheet": "SDPA_bwd", "N_Q": 10, "H_Q": 3}),
    *[(f"-{FLASH}", shapes, WHOLE, HALF, None, {}) for shapes in (
        [[2, 8, 4, 4], [3, 8, 4, 4], [3, 8, 4, 4]], [[2, 8, 4, 4]] * 2, [[8, 4, 4]] * 3,
        [[2, 8, 4, 4], [2, 0, 4, 4], [2, 0, 4, 4]])],
    # Batches are measured in training alone; weights and biases may be missing.
    ("native_batch_norm", [X, [8], [8], [8], [8]], TRAINING, "float",
     (5 * N + 6 * C, 4 * (2 * N + 6 * C)), {"is_training": True, "sheet": "Normalization"}),
    ("native_batch_norm", [X, [8], [8], [8], [8]], GIVEN, "float",
     (2 * N + 6 * C, 4 * (2 * N + 4 * C)), {"is_training": False, "spec": "vector_fp32"}),
    ("native_batch_norm", [X, [], [], [8], [8]], TRAINING, "float",
     (None, 4 * (2 * N + 4 * C)), {"is_affine": False, "has_bias": False}),
    ("layer_norm", [[10, 20, 30], [], [20, 30], []], ["", "[20, 30]"], "float",
     (5 * 6000 + 6 * 600, None), {"num_channels": 600, "is_affine": True, "has_bias": False}),
    ("group_norm", [X, [], [8], [8]], ["", "2"], "float",
     (None, 4 * (2 * N + 6 * C)), {"num_channels": C}),
    ("native_group_norm", [X, [8], [8]], [""], "float",
     (None, 4 * (2 * N + 6 * C)), {"num_channels": C}),
    ("instance_norm", [X, [8], [8], [], []], [""] * 5 + ["True"], "float",
     (None, 4 * (2 * N + 6 * C)), {"num_channels": C}),
    ("native_layer_norm_backward", LAYER, layers("[True, True, True]"), "float",
     (9 * N, 4 * (3 * N + C * 4)), {"output_mask": "[True, True, True]"}),
    ("native_layer_norm_backward", LAYER, layers("[False, True, True]"), "float",
     (4 * N, 4 * (2 * N + C * 4)), {}),
    ("native_layer_norm_backward", LAYER, layers("[True, False, False]"), "float",
     (9 * N, 4 * (3 * N + C)), {}),
    *[(f"{library}_batch_norm_backward", [X, X, [8]], [], "float",
       (9 * N, 4 * (3 * N + C * 4)), {"is_training": True}) for library in ("cudnn", "miopen")],
    ("native_batch_norm_backward", [X, X, [8]], [""] * 7 + ["False", "1e-05", "[True, True, True]"],
     "float", (6 * N + 3 * C, None), {}),
    ("_fused_rms_norm", [[100, 8], [], [8]], ["", "[8]"], "float",
     (2 * N + 2 * 100 + 2 * N, 4 * (2 * N + C)), {}),
    ("_fused_rms_norm_backward", [[100, 8], [100, 8], [], [100], [8]],
     ["", "", "[8]", "", "", "[True, True]"], "float",
     (N + N + 6 * N + 2 * N, 4 * (3 * N + 2 * C)), {}),
    ("layer_norm", [[10, 7], [], []], ["", "[3]"], "float", None, {}),
    ("batch_norm", [[8]], [], "float", None, {}),
    # Convolutions; a transposed one undoes a plain one from (4, 6, 9) to (4, 8, 5).
    ("convolution", SIZES, convolution("[2, 2]", "[1]", "[1, 1]", "False", "[0, 0]", "1"), "float",
     (2 * OUTPUT * 27 + OUTPUT, 4 * (8 * 3 * 1024 + 16 * 27 + 16 + OUTPUT)),
     {"sheet": "CONV_fwd", "spec": "matrix_fp32", "convNd": "conv2d", "padding": "(1, 1)",
      "bias": True}),
    *[("convolution", [shape, [8, 3, 3]], convolution(*values), "float",
       (2 * (4 * 8 * 5) * (3 * 3), 4 * (4 * 6 * 9 + 8 * 9 + 4 * 8 * 5)), {})
      for shape, values in (([4, 6, 9], LINE), ([4, 8, 5], BACK))],
    # Only requested gradients count.
    *[("convolution_backward", FILTERS, gradients(*wanted), "float",
       (products * 2 * 768 * 4 + bias * 768,
        4 * (products * (512 + 24 + 768) + bias * (768 + 6))), {})
      for wanted, products, bias in ((["[True, True, False]"], 2, 0),
                                     (["[False, True, True]"], 1, 1), ([""], 2, 1))],
    ("convolution", SIZES[:2], convolution("[0, 0]", *ONES[1:]), "float", None, {}),
    ("convolution", [[8, 3, 2, 2], [16, 3, 5, 5]], convolution(*ONES), "float", None, {}),
    ("convolution", [[8, 3], [16, 3]], convolution(*ONES), "float", None, {}),
    # Functions of one or two tensors, which are broadcast; the wider type is the result.
    ("copy_", [[10, 20], [10, 20], []], [], [BF16, "float", "Scalar"],
     (200, 200 * (2 + 4)), {"dtype_in_out": f"('{BF16}', 'float')", "spec": "vector_bf16"}),
    ("sigmoid", [[10, 20]], [], "float", (200, 200 * 8), {"stride_output": None}),
    ("replication_pad2d", [[1, 2, 4, 4], []], ["", "[1,1,2,0]"], "float",
     (None, 4 * (32 + 72)), {"op_shape": "(1, 2, 6, 6)", "padding": "(1, 1, 2, 0)"}),
    ("upsample_nearest2d", [[1, 2, 4, 4], []], ["", "[8, 12]"], "float",
     (192, None), {"output_shape": "(1, 2, 8, 12)"}),
    ("replication_pad2d", [[4]], ["", "[1,1,1,1]"], "float", None, {}),
    ("mul", [[16, 1, 8], [5, 8]], [], ["float", BF16],
     (16 * 5 * 8, 4 * 128 + 2 * 40 + 4 * 640), {}),
    ("mul", [[3], [4]], [], "float", None, {}),
    ("mul", [[100], []], [], [BF16, "double"], (100, 200 + 8 + 200), {"spec": "vector_bf16"}),
    ("mul", [[], [100]], [], ["double", BF16], (100, 200 + 8 + 200), {"spec": "vector_bf16"}),
    ("mul", [[100], [100], [100]], [], [BF16, BF16, "float"], (None, 200 + 200 + 400), {}),
    ("add", [[4], [4]], [], [], (4, None), {"mebibytes": None, "intensity": None, "spec": None}),
    ("relu", [[4]], [], "float", None, {}),
    # A reduction leaves the dimensions that it does not reduce; the larger of two is none.
    *[(name, [[2, 3, 4], [], [], []], values, "float",
       (24, 4 * (24 + results)), {"num_output_elems": results})
      for name, values, results in (
          ("sum", ["", "[-1]", "True", ""], 6), ("sum", ["", "[]", "False", ""], 1),
          ("mean", ["", ""], 1), ("linalg_norm", ["", "2", "[0, 2]", "True", ""], 3),
          ("max", ["", "-1", "False"], 6), ("cumsum", ["", "1", ""], 24))],
    ("max", [[4], [4]], [], "float", None, {}),
    # Backward passes are derived from forward arguments.
    *[(f"{sign}sum", [[8, 4], [], [], []], ["", "[0]", "False", ""], "float",
       (32, 4 * (32 + 4)), {"sheet": f"Reduce_{way}"})
      for sign, way in (("", "fwd"), ("-", "bwd"))],
    ("-copy_", [[4]], [], "float", None, {}),
]  # fmt: skip


def _model(name, shapes, values=(), dtypes="float", strides=()):
    types = [dtypes] * max(4, len(shapes)) if isinstance(dtypes, str) else dtypes
    recorded = OperatorArguments(*map(json.dumps, (shapes, types, strides, values)))
    operator = name.removeprefix("-")
    operator = operator if ":" in operator else f"aten::{operator}"
    return operator_model(operator, recorded, backward=name.startswith("-"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_work_and_bytes(case):
    name, shapes, values, dtypes, expected, facts = case
    model = _model(name, shapes, values, dtypes)
    if expected is None:
        assert model is None
        return
    flops, moved = expected
    assert flops is None or model.flops == flops
    assert model.bytes == moved or (moved is None and dtypes)
    for key, value in facts.items():
        found = model.cells[key] if key in model.cells else getattr(model, key)
        assert (found, type(found)) == (value, type(value)), key


def test_which_operators_are_known():
    assert len(NAMES) == len(set(NAMES))
    assert all(has_model(name) and is_reported(name) for name in NAMES)
    assert (is_reported("aten::addmm"), has_model("aten::addmm")) == (True, False)
    assert not is_reported("aten::linear")
    assert (has_backward_model("aten::sum"), has_backward_model("aten::copy_")) == (True, False)
    assert _model("sigmoid", [[10, 20]], strides=[[20, 1]]).cells["stride_input"] == "(20, 1)"


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "flops", "moved", "spec"),
    [
        ("addmm", [[30], [10, 20], [20, 30]], [BF16] * 3, 2 * 10 * 20 * 30 + 10 * 30,
         2 * (10 * 20 + 20 * 30 + 10 * 30 + 30), "matrix_bf16"),
        ("bmm", [[4, 10, 20], [4, 20, 30]], ["float"] * 2, 4 * 2 * 10 * 20 * 30,
         4 * 4 * (10 * 20 + 20 * 30 + 10 * 30), "matrix_fp32"),
        # Narrow operands give two-byte results; unknown types have no bytes.
        ("_scaled_mm", [[16, 32], [32, 16]], [FP8] * 2, 2 * 16 * 32 * 16,
         2 * 16 * 32 + 2 * 16 * 16, "matrix_fp8"),
        ("mm", [[16, 32], [32, 16]], [], 2 * 16 * 32 * 16, None, None),
    ],
)  # fmt: skip
def test_gemms(name, shapes, dtypes, flops, moved, spec):
    recorded = OperatorArguments(json.dumps(shapes), json.dumps(dtypes), '[["x"],[32,1]]')
    model = gemm_model(f"aten::{name}", recorded, gemm_shape(f"aten::{name}", recorded))
    assert (model.gflops, model.bytes, model.spec) == (pytest.approx(flops / 1e9), moved, spec)
    if moved is None:
        assert (model.mebibytes, model.intensity) == (None, None)
        # Damaged strides are left out.
        assert (model.cells["stride_A"], model.cells["stride_B"]) == (None, "(32, 1)")
    else:
        assert model.mebibytes == moved / 2**20
        assert model.intensity == pytest.approx(flops / moved)


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
