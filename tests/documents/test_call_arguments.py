from __future__ import annotations

import pytest

from gemmetry.documents.operator_models import Call, MissingArgumentError, elements
from gemmetry.formats.events import OperatorArguments


def _call(values="[]", shapes="[]", dtypes="[]", strides="[]"):
    return Call.decoded("aten::x", OperatorArguments(shapes, dtypes, strides, values))


def test_tensors_by_place():
    call = _call(shapes="[[2,3],[],7]", dtypes='["float","Scalar",3]', strides='[[3,1],["x"]]')
    assert call.shape(0) == (2, 3)
    assert (call.has(0), call.has(1), call.has(2), call.has(3)) == (True, False, False, False)
    assert (call.stride(0), call.stride(1), call.stride(2)) == ((3, 1), None, None)
    assert (call.dtype(0), call.dtype(2), call.dtype(9)) == ("float", None, None)
    assert (call.width(0), call.width(1), call.width(2)) == (4, 4, None)
    with pytest.raises(MissingArgumentError):
        call.shape(2)


def test_values_by_place():
    call = _call('["[1, 2]", "True", "0.5", "7", "[True, false]", "[]", null, "x"]')
    assert call.list_of_numbers(0) == (1, 2)
    assert (call.flag(1), call.flag(2), call.flag(9)) == (True, False, False)
    assert (call.real(2), call.real(9)) == (0.5, 0)
    assert call.number(3) == 7
    assert call.flags(4, 2) == (True, False)
    assert call.flags(9, 2) == (True, True)
    assert call.numbers(0, 2, 5) == (1, 2)
    assert call.numbers(5, 3, 5) == (5, 5, 5)
    assert call.numbers(9, 2, 0) == (0, 0)
    assert call.value(6) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        lambda call: call.number(0), lambda call: call.number(1), lambda call: call.real(0),
        lambda call: call.list_of_numbers(0), lambda call: call.list_of_numbers(2),
        lambda call: call.flags(2, 3), lambda call: call.numbers(2, 3, 1),
        lambda call: call.number(9),
    ],
)  # fmt: skip
def test_values_that_cannot_be(wrong):
    call = _call(f'["x", "{"9" * 5000}", "[1, x]"]')
    with pytest.raises(MissingArgumentError):
        wrong(call)


def test_sizes_that_cannot_be():
    for shapes in ("[[-1]]", f"[[{2**50}]]", '[["2"]]', f"[{[1] * 65}]"):
        with pytest.raises(MissingArgumentError):
            _call(shapes=shapes).shape(0)
    with pytest.raises(MissingArgumentError):
        elements((2**30, 2**30))
    assert elements(()) == 1
