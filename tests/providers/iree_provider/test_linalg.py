"""Golden texts of generated functions; whether they compile and compute is test_provider's job."""

from __future__ import annotations

import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.providers.iree_provider.linalg import (
    contraction_indexing_maps,
    contraction_types,
    float_literal,
    function_text,
)

PLAIN = """\
func.func @f(
    %lhs: tensor<8x32xf32>,
    %rhs: tensor<32x16xf32>,
    %out: tensor<8x16xf32> {iree.abi.output = 0 : i32}
) -> tensor<8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<8x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<8x16xf32>) -> tensor<8x16xf32>
  %result = linalg.matmul
      ins(%lhs, %rhs : tensor<8x32xf32>, tensor<32x16xf32>)
      outs(%acc_zeros : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %result : tensor<8x16xf32>
}
"""

ROUNDED_ONCE = """\
func.func @f(
    %lhs: tensor<8x32xf16>,
    %rhs: tensor<32x16xf16>,
    %out: tensor<8x16xf16> {iree.abi.output = 0 : i32}
) -> tensor<8x16xf16> {
  %zero = arith.constant 0.0 : f32
  %acc_empty = tensor.empty() : tensor<8x16xf32>
  %acc_zeros = linalg.fill ins(%zero : f32) outs(%acc_empty : tensor<8x16xf32>) -> tensor<8x16xf32>
  %acc = linalg.matmul {compilation_info = #info}
      ins(%lhs, %rhs : tensor<8x32xf16>, tensor<32x16xf16>)
      outs(%acc_zeros : tensor<8x16xf32>) -> tensor<8x16xf32>
  %result_empty = tensor.empty() : tensor<8x16xf16>
  %result = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, \
affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%acc : tensor<8x16xf32>)
      outs(%result_empty : tensor<8x16xf16>) {
  ^bb0(%acc_element: f32, %unused: f16):
    %result_f16 = arith.truncf %acc_element : f32 to f16
    linalg.yield %result_f16 : f16
  } -> tensor<8x16xf16>
  return %result : tensor<8x16xf16>
}
"""


def text_of(name: str, info: str | None = None) -> str:
    return function_text(parse_operation(name), "f", info)


def test_a_plain_matmul_is_one_linalg_operation():
    assert text_of("matmul_8x16x32_f32t_f32t_f32t") == PLAIN


def test_a_half_precision_result_is_accumulated_in_f32_and_rounded_once():
    assert text_of("matmul_8x16x32_f16t_f16t_f16t", "#info") == ROUNDED_ONCE


def test_a_named_accumulator_replaces_f32():
    text = text_of("matmul_8x16x32_f16t_f16t_f16t_accf16")
    assert "f32" not in text
    assert "arith.truncf" not in text


@pytest.mark.parametrize(
    ("layouts", "lhs", "rhs", "lhs_type", "rhs_type"),
    [
        ("f32t_f32n_f32t", "(d0, d2)", "(d1, d2)", "8x32", "16x32"),
        ("f32n_f32t_f32t", "(d2, d0)", "(d2, d1)", "32x8", "32x16"),
        ("f32n_f32n_f32t", "(d2, d0)", "(d1, d2)", "32x8", "16x32"),
    ],
)
def test_layouts_are_indexing_maps(layouts, lhs, rhs, lhs_type, rhs_type):
    name = f"matmul_8x16x32_{layouts}"
    text = text_of(name)
    assert f"-> {lhs}>, affine_map<(d0, d1, d2) -> {rhs}>" in text
    assert f"ins(%lhs, %rhs : tensor<{lhs_type}xf32>, tensor<{rhs_type}xf32>)" in text
    assert contraction_indexing_maps(parse_operation(name))[2].endswith("(d0, d1)>")


def test_a_column_major_result_swaps_the_operands():
    text = text_of("matmul_8x16x32_f32n_f32n_f32n")
    assert "ins(%rhs, %lhs : tensor<16x32xf32>, tensor<32x8xf32>)" in text
    assert "-> tensor<16x8xf32>" in text
    assert "indexing_maps" not in text


def test_types_follow_the_swapped_operands():
    assert contraction_types(parse_operation("matmul_8x16x32_e4m3t_e5m2t_f32t")) == (
        "f8E4M3FN",
        "f8E5M2",
    )
    assert contraction_types(parse_operation("matmul_8x16x32_e4m3t_e5m2t_f32n")) == (
        "f8E5M2",
        "f8E4M3FN",
    )


def test_split_k_multiplies_slices_and_reduces_them():
    text = text_of("matmul_splitk_8x16x32_f16n_f16t_f32t_slices4", "#info")
    assert "%lhs_slices = tensor.expand_shape %lhs [[0, 1], [2]] output_shape [4, 8, 8]" in text
    assert "%rhs_slices = tensor.expand_shape %rhs [[0, 1], [2]] output_shape [4, 8, 16]" in text
    assert "(d0, d1, d2, d3) -> (d0, d3, d1)>" in text
    assert "attrs =  {compilation_info = #info} {" in text
    assert "linalg.reduce { arith.addf } ins(%partial : tensor<4x8x16xf32>)" in text
    assert "dimensions = [0]" in text


def test_a_batch_is_a_batch_matmul():
    text = text_of("batch_matmul_4x8x16x32_f32t_f32n_f32t")
    assert "linalg.batch_matmul indexing_maps" in text
    assert "(d0, d1, d2, d3) -> (d0, d2, d3)>" in text


def test_a_convolution_pads_its_image_with_zeros():
    padded = text_of("conv2d_1x8x8x4_3x3x16_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc")
    assert "tensor.pad %lhs low[0, 1, 0, 0] high[0, 1, 0, 0]" in padded
    assert "to tensor<1x10x8x4xf32>" in padded
    assert "strides = dense<[2, 1]> : tensor<2xi64>" in padded
    plain = text_of("conv2d_1x8x8x4_3x3x16_f32nhwc_f32hwcf_f32nhwc")
    assert "tensor.pad" not in plain
    assert "ins(%lhs, %rhs : tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>)" in plain


def test_epilogue_steps_keep_their_order_and_end_in_one_rounding():
    text = text_of("matmul_8x16x32_bf16t_bf16t_bf16t_alpha0p5_beta2_residual_gelu_bias_relu")
    order = ["%scaled =", "%added =", "%with_residual =", "%gelu =", "%with_bias =", "%relu ="]
    positions = [text.index(step) for step in order]
    assert positions == sorted(positions)
    assert text.count("arith.truncf") == 1
    assert "math.erf" in text
    assert "affine_map<(d0, d1) -> (d1)>" in text


def test_the_bias_of_a_column_major_result_runs_along_its_rows():
    text = text_of("matmul_8x16x32_f32t_f32t_f32n_bias")
    assert "affine_map<(d0, d1) -> (d0)>" in text


def test_integers_are_added_and_clamped_as_integers():
    text = text_of("matmul_8x16x32_s8t_s8t_s32t_beta1_relu")
    assert "arith.addi" in text
    assert "arith.maxsi" in text
    assert "%relu_floor = arith.constant 0 : i32" in text


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (1e-05, "1.0e-05"), (1.5e300, "1.5e+300"), (-2.0, "-2.0")]
)
def test_float_literals_have_a_point(value, text):
    assert float_literal(value) == text
    assert float(text) == value
