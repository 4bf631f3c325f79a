from __future__ import annotations

import json

import pytest

from gemmetry.documents.operator_models import operator_model
from gemmetry.formats.events import OperatorArguments

X, N, C = [4, 8, 5, 5], 800, 8


def _model(name, shapes, values):
    recorded = OperatorArguments(
        shapes=json.dumps(shapes), dtypes=json.dumps(["float"] * len(shapes)),
        values=json.dumps(values),
    )  # fmt: skip
    model = operator_model(name, recorded)
    assert model is not None
    assert model.sheet == "Normalization"
    assert model.spec == "vector_fp32"
    return model


@pytest.mark.parametrize(("training", "per_element", "statistics"), [(True, 5, 4), (False, 2, 2)])
def test_batches_are_measured_in_training_alone(training, per_element, statistics):
    values = ["", "", "", "", "", str(training), "0.1", "1e-05"]
    model = _model("aten::native_batch_norm", [X, [8], [8], [8], [8]], values)
    assert model.flops == per_element * N + 6 * C
    assert model.bytes == 4 * (2 * N + C * (statistics + 2))
    assert model.cells["is_training"] is training


def test_weights_and_biases_that_are_not_there():
    model = _model("aten::native_batch_norm", [X, [], [], [8], [8]], [""] * 5 + ["True"])
    assert (model.cells["is_affine"], model.cells["has_bias"]) == (False, False)
    assert model.bytes == 4 * (2 * N + 4 * C)


def test_layers_have_the_sizes_that_are_normalized_as_channels():
    model = _model("aten::layer_norm", [[10, 20, 30], [], [20, 30], []], ["", "[20, 30]"])
    assert model.cells["num_channels"] == 600
    assert (model.cells["is_affine"], model.cells["has_bias"]) == (True, False)
    assert model.flops == 5 * 6000 + 6 * 600


@pytest.mark.parametrize(
    ("name", "shapes", "values", "places"),
    [
        ("aten::group_norm", [X, [], [8], [8]], ["", "2"], 2),
        ("aten::native_group_norm", [X, [8], [8]], [""], 2),
        ("aten::instance_norm", [X, [8], [8], [], []], [""] * 5 + ["True"], 2),
    ],
)
def test_groups_and_instances_have_weights_by_channel(name, shapes, values, places):
    model = _model(name, shapes, values)
    assert model.cells["num_channels"] == C
    assert model.bytes == 4 * (2 * N + C * (4 + places))


@pytest.mark.parametrize(
    ("wanted", "flops", "moved"),
    [
        ("[True, True, True]", 9 * N, 3 * N + C * 4),
        ("[False, True, True]", 4 * N, 2 * N + C * 4),
        ("[True, False, False]", 9 * N, 3 * N + C),
    ],
)
def test_requested_gradients_of_layers(wanted, flops, moved):
    shape = [100, 8]
    values = ["", "", "[8]", "", "", "", "", wanted]
    model = _model("aten::native_layer_norm_backward", [shape, shape, [], [100], [100]], values)
    assert (model.flops, model.bytes) == (flops, 4 * moved)
    assert model.cells["output_mask"] == wanted


@pytest.mark.parametrize("library", ["cudnn", "miopen"])
def test_libraries_are_called_after_training_alone(library):
    model = _model(f"aten::{library}_batch_norm_backward", [X, X, [8]], [])
    assert model.cells["is_training"] is True
    assert model.flops == 9 * N
    assert model.bytes == 4 * (3 * N + C * 4)


def test_a_batch_whose_statistics_were_given_has_a_short_backward_pass():
    values = [""] * 7 + ["False", "1e-05", "[True, True, True]"]
    model = _model("aten::native_batch_norm_backward", [X, X, [8]], values)
    assert model.flops == 6 * N + 3 * C


def test_the_mean_square_needs_no_mean():
    model = _model("aten::_fused_rms_norm", [[100, 8], [], [8]], ["", "[8]"])
    assert model.flops == 2 * N + 2 * 100 + 2 * N
    assert model.bytes == 4 * (2 * N + C)
    shapes, values = [[100, 8], [100, 8], [], [100], [8]], ["", "", "[8]", "", "", "[True, True]"]
    backward = _model("aten::_fused_rms_norm_backward", shapes, values)
    assert backward.flops == N + N + 6 * N + 2 * N
    assert backward.bytes == 4 * (3 * N + 2 * C)


def test_what_does_not_fit_is_not_known():
    recorded = OperatorArguments(shapes="[[10, 7], [], []]", values='["", "[3]"]')
    assert operator_model("aten::layer_norm", recorded) is None
    assert operator_model("aten::batch_norm", OperatorArguments(shapes="[[8]]")) is None
