"""Models of operators: the work and the bytes of calls (``models.txt``), and their arguments
(``arguments.txt``)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import cases

from gemmetry.documents.operator_models import (
    FAMILIES,
    Call,
    MissingArgumentError,
    elements,
    gemm_model,
    has_backward_model,
    has_model,
    is_reported,
    operator_model,
)
from gemmetry.formats.events import OperatorArguments
from gemmetry.traces.operators.gemms import gemm_shape, is_gemm_operator

NAMES = [name for family in FAMILIES for name in family.operators]

MODELS = Path(__file__).with_name("models.txt")
ARGUMENTS = Path(__file__).with_name("arguments.txt")


def _recorded(shapes=(), dtypes=(), strides=(), values=()):
    return OperatorArguments(*map(json.dumps, (shapes, dtypes, strides, values)))


def _model(line):
    _, (), given = cases.arguments(f"call {line.partition(' ')[2]}")
    if isinstance(given.get("dtypes"), str):
        given["dtypes"] = [given["dtypes"]] * max(4, len(given["shapes"]))
    recorded = _recorded(**given)
    name = line.split()[0].removeprefix("-")
    operator = name if ":" in name else f"aten::{name}"
    if is_gemm_operator(operator):
        return gemm_model(operator, recorded, gemm_shape(operator, recorded))
    return operator_model(operator, recorded, backward=line[0] == "-")


@pytest.mark.parametrize("title", cases.read(MODELS))
def test_work_and_bytes(title):
    found = []
    for line in cases.read(MODELS)[title][0]:
        model = _model(line)
        names = ("sheet", "flops", "bytes", "spec", "mebibytes", "intensity") if model else ()
        facts = {name: getattr(model, name) for name in names}
        found.append(cases.shown(line.split()[0], facts | (model.cells if model else {})))
    cases.check(MODELS, title, found)


@pytest.mark.parametrize("title", cases.read(ARGUMENTS))
def test_arguments(title):
    found = []
    for line in cases.read(ARGUMENTS)[title][0]:
        what, places, given = cases.arguments(line)
        if what == "call":
            call = Call.decoded("aten::x", _recorded(**given))
            continue
        try:
            found.append(f"{line}: {getattr(call, what)(*places)}")
        except MissingArgumentError:
            found.append(f"{line}: missing")
    cases.check(ARGUMENTS, title, found)


def test_elements():
    assert elements(()) == 1
    with pytest.raises(MissingArgumentError):
        elements((2**30, 2**30))


def test_which_operators_are_known():
    assert len(NAMES) == len(set(NAMES))
    assert all(has_model(name) and is_reported(name) for name in NAMES)
    assert (is_reported("aten::addmm"), has_model("aten::addmm")) == (True, False)
    assert not is_reported("aten::linear")
    assert (has_backward_model("aten::sum"), has_backward_model("aten::copy_")) == (True, False)
    strided = _model("sigmoid shapes=[[10,20]] dtypes=float strides=[[20,1]]")
    assert strided.cells["stride_input"] == "(20, 1)"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["[1, 1]", "[-1]", "True", "[True, False, True]", "1", "float", "c10::Half"]),
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
    recorded = _recorded(shapes, dtypes, strides, values)
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
