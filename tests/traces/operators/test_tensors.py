from __future__ import annotations

import pytest

from gemmetry.formats.events import OperatorArguments
from gemmetry.traces.joins import Tensor, decoded_list, input_tensors


def tensors(shapes: str, dtypes: str = "") -> list[list[Tensor]]:
    return input_tensors(OperatorArguments(shapes=shapes, dtypes=dtypes))


def test_tensors_lists_of_tensors_and_scalars():
    found = tensors("[[2, 3], [[4], [5, 6]], []]", '["float", "TensorList", "Scalar"]')
    assert found == [
        [Tensor((2, 3), "float")],
        [Tensor((4,), ""), Tensor((5, 6), "")],
        [],
    ]
    assert [tensor.elements for place in found for tensor in place] == [6, 4, 30]


def test_element_types_may_be_missing():
    assert tensors("[[2], [3]]", '["float"]') == [[Tensor((2,), "float")], [Tensor((3,), "")]]


@pytest.mark.parametrize(
    "shapes",
    [
        "",
        "{}",
        "[",
        "7",
        '["x"]',
        "[[-1]]",
        "[[1.5]]",
        "[[[[1]]]]",
        "[" * 5000,
        "[[1099511627776, 2]]",
        f"[{[2**62] * 30}]",
    ],
)
def test_a_value_that_is_not_a_shape_gives_no_tensor(shapes):
    assert not any(tensors(shapes))


def test_a_value_that_is_not_a_list_is_empty():
    assert decoded_list("{") == decoded_list('{"a": 1}') == decoded_list("") == []
    assert decoded_list("[" * 100_000) == []
