from __future__ import annotations

import math

import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.bounds import accuracy_class, class_errors


def operation(formats, k=4096):
    return parse_operation(f"matmul_8x8x{k}_{formats}")


@pytest.mark.parametrize(
    ("formats", "classes"),
    [
        ("f64t_f64t_f64t", ["fp64", "fp32", "tf32", "fp16-accumulated", "bf16-accumulated"]),
        ("f32t_f32t_f32t", ["fp32", "tf32", "fp16-accumulated", "bf16-accumulated"]),
        ("bf16t_bf16t_bf16t", ["fp32-accumulated", "fp16-accumulated", "bf16-accumulated"]),
        (
            "e4m3t_e4m3n_bf16t",
            [
                "fp32-accumulated",
                "fp8-promoted",
                "fp8-14bit",
                "fp16-accumulated",
                "bf16-accumulated",
            ],
        ),
    ],
)
def test_classes_in_order_of_their_errors(formats, classes):
    assert list(class_errors(operation(formats))) == classes


@pytest.mark.parametrize(
    ("formats", "error", "expected"),
    [
        ("f64t_f64t_f64t", 1e-15, "fp64"),
        ("f64t_f64t_f64t", 1e-6, "fp32"),
        ("f32t_f32t_f32t", -1.0, "fp32"),
        ("f32t_f32t_f32t", 5e-4, "tf32"),
        ("bf16t_bf16t_f32t", 1e-6, "fp32-accumulated"),
        ("bf16t_bf16t_f32t", 0.1, "fp16-accumulated"),
        ("bf16t_bf16t_f32t", 1.0, "bf16-accumulated"),
        ("bf16t_bf16t_f32t", 100.0, "none"),
        ("bf16t_bf16t_f32t", math.nan, "none"),
        ("e4m3t_e4m3n_bf16t", 6.3e-4, "fp8-promoted"),
        ("e4m3t_e4m3n_bf16t", 8e-2, "fp8-14bit"),
        ("s8t_s8t_s32t", 0.0, "exact"),
        ("s8t_s8t_s32t", 1.0, "none"),
    ],
)
def test_smallest_class_that_holds(formats, error, expected):
    assert accuracy_class(operation(formats), error) == expected
