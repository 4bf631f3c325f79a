from __future__ import annotations

import json

import pytest

from gemmetry.formats.events import OperatorArguments
from gemmetry.traces.operators.gemms import (
    GemmShape,
    gemm_shape,
    is_convolution_operator,
    is_gemm_operator,
    unpacked_for,
)


def test_shapes(case):
    """Sizes, format, layout and scaling by an operator's name and arguments."""
    found = []
    for what, (name,), given in case.calls():
        if what == "convolution":
            found.append(f"{name}: {is_convolution_operator(name)}")
            continue
        recorded = OperatorArguments(**{key: json.dumps(value) for key, value in given.items()})
        shape = gemm_shape(name, recorded)
        assert shape is None or is_gemm_operator(name)
        found.append((name, {} if shape is None else shape._asdict()))
    case.check(found)


@pytest.mark.parametrize(
    "shapes",
    ["", "[[4, 8]]", "[[4, 8], [9, 16]]", "[[4, 0], [0, 16]]", "[[[4, 8]], [8, 16]]",
     '["x", null]', "{", "[" * 100_000, "[[-4, 8], [8, 16]]"],
)  # fmt: skip
def test_damaged_arguments_are_ignored(shapes):
    assert gemm_shape("aten::mm", OperatorArguments(shapes=shapes)) is None


def test_bytes_that_a_kernel_of_fp4_multiplies():
    shape = GemmShape(64, 96, 512, dtype="u8")
    assert unpacked_for(shape, "e2m1")[:3] == (64, 96, 1024)
    assert unpacked_for(shape, None) == shape
    assert GemmShape(3, 5, 7, 2).flops == 2 * 2 * 3 * 5 * 7, "a product and a sum each"
    assert unpacked_for(GemmShape(64, 96, 512, dtype="e2m1"), "e2m1").k == 512
