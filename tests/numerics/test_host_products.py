from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import F32, Layout, TensorSpec
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import (
    compute_dtype_of_accumulator,
    compute_reference,
    evaluate,
    exact_integer_dtype,
    plain_product,
    to_logical,
    to_storage,
)
from gemmetry.numerics.storage import numpy_dtype


@pytest.mark.parametrize(("dtype_of", "name", "dtype"), [
    (exact_integer_dtype, "matmul_4x4x1024_s8t_s8t_s32t", np.float32),
    (exact_integer_dtype, "matmul_4x4x1025_s8t_s8t_s32t", np.float64),
    (exact_integer_dtype, "matmul_4x4x8_s8t_s8t_s32t_bias", np.float64),
    (compute_dtype_of_accumulator, "matmul_9x7x5_f16t_f16t_f16t", np.float32),
    (compute_dtype_of_accumulator, "matmul_9x7x5_f32t_f32t_f32t_accf64", np.float64),
    (compute_dtype_of_accumulator, "matmul_9x7x5_f64t_f64t_f64t", np.float64),
    (compute_dtype_of_accumulator, "matmul_9x7x5_s8t_s8t_s32t", np.float32),
])  # fmt: skip
def test_dtypes_are_the_accumulators_and_float32_only_where_s8_is_exact(dtype_of, name, dtype):
    assert dtype_of(parse_operation(name)) == dtype


def test_logical_views_share_memory_with_what_is_stored():
    stored = np.arange(6, dtype=np.float32).reshape(3, 2)
    spec = TensorSpec("lhs", (2, 3), F32, Layout.COLUMN)
    view = to_logical(stored, spec)
    assert view.shape == (2, 3) and np.shares_memory(view, stored)
    assert to_logical(stored, TensorSpec("lhs", (3, 2), F32)) is stored
    back = to_storage(view, spec)
    assert back.flags.c_contiguous and (back == stored).all()


@pytest.mark.parametrize("name", [
    "matmul_9x7x5_f16n_f16t_f16n_bias_gelu", "matmul_9x7x5_s8t_s8n_s32n_beta1_bias",
    "conv2d_2x7x6x3_3x2x4_stride2x1_pad1x1_bf16nhwc_bf16hwcf_f32nhwc_residual_relu",
])  # fmt: skip
def test_float64_evaluation_is_the_reference_rounded_once(name):
    operation = parse_operation(name)
    inputs = make_inputs(operation, distribution="uniform_signed", seed=5)
    dtype = numpy_dtype(operation.signature.result)
    output = np.empty(operation.output.storage_shape, dtype)
    evaluate(operation, inputs, output, np.dtype(np.float64))
    expected = compute_reference(operation, inputs).value.astype(dtype)
    assert np.array_equal(to_logical(output, operation.output), expected)


@pytest.mark.parametrize("shape", ["matmul_9x7x5", "batch_matmul_3x9x7x5"])
@pytest.mark.parametrize(
    ("dtype", "compute_dtype"), [("f32", "float32"), ("f32", "float64"), ("f64", "float64")]
)
@pytest.mark.parametrize("layouts", ["ttt", "tnt", "ntt", "nnt", "ttn", "tnn", "ntn", "nnn"])
def test_a_plain_product_is_what_evaluate_computes(shape, dtype, compute_dtype, layouts):
    operation = parse_operation(f"{shape}_" + "_".join(dtype + layout for layout in layouts))
    compute_dtype = np.dtype(compute_dtype)
    inputs = make_inputs(operation, distribution="uniform_signed", seed=5)
    outputs = [np.empty(operation.output.storage_shape, inputs[0].dtype) for _ in range(2)]
    launch = plain_product(operation, compute_dtype)
    assert launch is not None
    launch(inputs, outputs[0])
    evaluate(operation, inputs, outputs[1], compute_dtype)
    assert outputs[0].tobytes() == outputs[1].tobytes()


@pytest.mark.parametrize("name", [
    "matmul_8x8x8_bf16t_bf16t_f32t", "matmul_8x8x8_f32t_f32t_f32t_alpha2",
    "matmul_8x8x8_f32t_f32t_f32t_beta1", "matmul_8x8x8_f32t_f32t_f32t_relu",
    "matmul_8x8x8_f32t_f32t_f32t_scalerow", "matmul_splitk_8x8x8_f32t_f32t_f32t_slices4",
    "conv2d_1x8x8x4_3x3x4_stride1x1_pad1x1_f32nhwc_f32hwcf_f32nhwc", "matmul_8x8x8_s8t_s8t_s32t",
])  # fmt: skip
def test_more_than_one_product_is_not_plain(name):
    operation = parse_operation(name)
    assert plain_product(operation, compute_dtype_of_accumulator(operation)) is None
    wider = parse_operation("matmul_8x8x8_f64t_f64t_f64t")
    assert plain_product(wider, np.dtype(np.float32)) is None
