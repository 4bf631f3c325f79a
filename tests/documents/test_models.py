"""Models of operators: the work and the bytes of calls (``models.txt``), and their arguments
(``arguments.txt``)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import arguments

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


def _recorded(shapes=(), dtypes=(), strides=(), values=()):
    return OperatorArguments(*map(json.dumps, (shapes, dtypes, strides, values)))


def _model(line):
    _, (), given = arguments(f"call {line.partition(' ')[2]}")
    if isinstance(given.get("dtypes"), str):
        given["dtypes"] = [given["dtypes"]] * max(4, len(given["shapes"]))
    recorded = _recorded(**given)
    name = line.split()[0].removeprefix("-")
    operator = name if ":" in name else f"aten::{name}"
    if is_gemm_operator(operator):
        return gemm_model(operator, recorded, gemm_shape(operator, recorded))
    return operator_model(operator, recorded, backward=line[0] == "-")


def test_work_and_bytes(case):
    found = []
    for line in case.lines:
        model = _model(line)
        names = ("sheet", "flops", "bytes", "spec", "mebibytes", "intensity") if model else ()
        facts = {name: getattr(model, name) for name in names}
        found.append((line.split()[0], facts | (model.cells if model else {})))
    case.check(found)


def test_arguments(arguments_case):
    found = []
    for line in arguments_case.lines:
        what, places, recorded = arguments(line)
        if what == "call":
            call = Call.decoded("aten::x", _recorded(**recorded))
            continue
        try:
            found.append(f"{line}: {getattr(call, what)(*places)}")
        except MissingArgumentError:
            found.append(f"{line}: missing")
    arguments_case.check(found)


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
