from __future__ import annotations

import pytest

from gemmetry.formats.events import OperatorArguments
from gemmetry.traces.joins import Tensor, decoded_list, input_tensors


def tensors(shapes: str, dtypes: str = "") -> list[list[Tensor]]:
    return input_tensors(OperatorArguments(shapes=shapes, dtypes=dtypes))


def test_tensors_lists_of_tensors_and_scalars():
    found = tensors("[[2, 3], [[4], [5, 6]], []]", '["float", "TensorList", "Scalar"]')
    assert found == [[Tensor((2, 3), "float")], [Tensor((4,), ""), Tensor((5, 6), "")], []]
    assert [tensor.elements for place in found for tensor in place] == [6, 4, 30]
    assert tensors("[[2], [3]]", '["float"]') == [[Tensor((2,), "float")], [Tensor((3,), "")]]


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}', "7", "[" * 100_000])
def test_a_value_that_is_not_a_list_is_empty(text):
    assert decoded_list(text) == tensors(text) == []


@pytest.mark.parametrize("place", ['"x"', [-1], [1.5], [[[1]]], [2**40, 2], [2**62] * 30])
def test_a_value_that_is_not_a_shape_gives_no_tensor(place):
    assert not any(tensors(f"[{place}]"))
