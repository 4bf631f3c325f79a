from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import RequestError
from gemmetry.domain.operation import (
    BF16,
    E4M3,
    F16,
    F32,
    S8,
    S32,
    TF32,
    Conv2dShape,
    EpilogueStep,
    Layout,
    MatmulShape,
    OperationKind,
    Scaling,
    Signature,
    TensorSpec,
    check_shape,
)

MATMUL = OperationKind.MATMUL


def test_flops_and_bytes_of_a_convolution_by_hand():
    """ResNet's first layer: 7×7 on 224×224×3 into 64 channels, stride 2, padding 3."""
    operation = parse_operation(
        "conv2d_1x224x224x3_7x7x64_stride2x2_pad3x3_f32nhwc_f32hwcf_f32nhwc"
    )
    assert operation.matmul_shape == (112 * 112, 64, 7 * 7 * 3, 1)
    assert operation.flops == 236_027_904  # 118.01 million multiply-adds
    assert operation.bytes == 4 * (224 * 224 * 3 + 7 * 7 * 3 * 64 + 112 * 112 * 64)


def test_extra_inputs_come_in_the_documented_order():
    name = "matmul_3x5x7_e4m3t_e4m3n_bf16n_scalerow_alpha2_beta3_bias_gelu_residual"
    operation = parse_operation(name)
    assert [(t.role, t.shape, t.storage_shape, str(t.dtype)) for t in operation.inputs] == [
        ("lhs", (3, 7), (3, 7), "e4m3"), ("rhs", (7, 5), (5, 7), "e4m3"),
        ("addend", (3, 5), (5, 3), "bf16"), ("scale_a", (3, 1), (3, 1), "f32"),
        ("scale_b", (1, 5), (1, 5), "f32"), ("bias", (5,), (5,), "bf16"),
        ("residual", (3, 5), (5, 3), "bf16"),
    ]  # fmt: skip
    assert operation.output == TensorSpec("result", (3, 5), BF16, Layout.COLUMN)


def test_tensors_of_a_batch_lead_with_the_batch():
    operation = parse_operation("batch_matmul_4x3x5x7_f16n_f16t_f16n_scalerow_bias")
    assert [t.storage_shape for t in operation.inputs] == [
        (4, 7, 3), (4, 7, 5), (4, 3, 1), (4, 1, 5), (5,),
    ]  # fmt: skip
    assert operation.output.storage_shape == (4, 5, 3)


def test_a_bias_has_one_value_per_channel_and_a_scaled_tensor_one_factor():
    operation = parse_operation("conv2d_2x8x8x4_3x3x6_f16nhwc_f16hwcf_f16nhwc_bias_residual")
    assert [t.shape for t in operation.inputs[2:]] == [(6,), (2, 6, 6, 6)]
    assert [t.storage_shape for t in operation.inputs[:2]] == [(2, 8, 8, 4), (3, 3, 4, 6)]
    scaled = parse_operation("matmul_3x5x7_e4m3t_e4m3n_f32t_scaletensor")
    assert [t.shape for t in scaled.inputs[2:]] == [(1,), (1,)]


@pytest.mark.parametrize(("arguments", "words"), [
    ({"lhs": S8, "rhs": F16, "result": F16}, "cannot be mixed"),
    ({"lhs": S8, "rhs": S8, "result": F32}, "cannot be mixed"),
    ({"lhs": S8, "rhs": S8, "result": S8}, "in s32 and return it"),
    ({"lhs": F16, "rhs": F16, "result": F16, "accumulator": E4M3}, "not an accumulator"),
    ({"lhs": F16, "rhs": F16, "result": F16, "accumulator": S32}, "not an accumulator"),
    ({"lhs": F32, "rhs": F32, "result": TF32}, "is f32"),
    ({"split_k_slices": 2}, "2 or more slices"),
    ({"kind": OperationKind.MATMUL_SPLITK}, "2 or more slices"),
    ({"kind": OperationKind.MATMUL_SPLITK, "split_k_slices": 0}, "2 or more slices"),
    ({"alpha": float("nan")}, "finite"),
    ({"beta": float("inf")}, "finite"),
    ({"lhs": S8, "rhs": S8, "result": S32, "alpha": 2}, "alpha 1"),
    ({"lhs": S8, "rhs": S8, "result": S32, "beta": 2}, "beta 0 or 1"),
    ({"lhs": S8, "rhs": S8, "result": S32, "scaling": Scaling.ROW}, "no scaling"),
    ({"lhs": S8, "rhs": S8, "result": S32, "epilogue": (EpilogueStep.GELU,)}, "gelu"),
    ({"epilogue": (EpilogueStep.BIAS, EpilogueStep.BIAS)}, "twice"),
    ({"lhs_layout": Layout.NHWC}, "takes the layouts t"),
    ({"kind": OperationKind.CONV2D}, "nhwc input"),
])  # fmt: skip
def test_contradictory_signatures_are_refused(arguments, words):
    base = {"kind": MATMUL, "lhs": F32, "rhs": F32, "result": F32}
    with pytest.raises(RequestError, match=words):
        Signature(**{**base, **arguments})


@pytest.mark.parametrize("extra", [{"alpha": 2}, {"beta": 1}, {"scaling": Scaling.TENSOR}])
def test_convolutions_take_no_alpha_beta_or_scaling(extra):
    layouts = (Layout.NHWC, Layout.HWCF, Layout.NHWC)
    with pytest.raises(RequestError, match="conv2d takes no"):
        Signature(OperationKind.CONV2D, F32, F32, F32, *layouts, **extra)


@pytest.mark.parametrize(("shape", "words"), [
    (MatmulShape(0, 1, 1), "m=0: sizes start at 1"),
    (MatmulShape(1, -3, 0), "n=-3, k=0"),
    (MatmulShape(1, 1, 1, 0), "batch=0"),
    (Conv2dShape(1, 4, 4, 1, 5, 1, 1), "larger than the padded input"),
    (Conv2dShape(1, 4, 4, 1, 3, 3, 1, pad_h=-1), "is negative"),
    (Conv2dShape(1, 4, 4, 0, 3, 3, 1), "c=0"),
    (Conv2dShape(1, 4, 4, 1, 3, 3, 1, stride_w=0), "stride_w=0"),
])  # fmt: skip
def test_shapes_that_mean_nothing_are_refused(shape, words):
    with pytest.raises(RequestError, match=words):
        check_shape(Signature(MATMUL, F32, F32, F32), shape)


def test_slices_must_divide_k():
    signature = Signature(OperationKind.MATMUL_SPLITK, F16, F16, F16, split_k_slices=18)
    with pytest.raises(RequestError, match="k=12288 does not divide into 18 slices"):
        check_shape(signature, MatmulShape(128, 128, 12288))
    check_shape(signature, MatmulShape(128, 128, 18 * 5))


def test_padding_makes_a_large_filter_fit_and_output_sizes_round_down():
    shape = Conv2dShape(1, 4, 4, 1, 6, 6, 1, pad_h=1, pad_w=1)
    check_shape(Signature(MATMUL, F32, F32, F32), shape)
    assert (shape.p, shape.q) == (1, 1)
    uneven = Conv2dShape(1, 10, 11, 1, 3, 3, 1, stride_h=2, stride_w=3)
    assert (uneven.p, uneven.q) == (4, 3)
