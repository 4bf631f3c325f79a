from __future__ import annotations

import pytest

from gemmetry.traces.operators.gemms import is_convolution_operator

SGEMM = "volta_sgemm_64x64_nt"


@pytest.mark.parametrize(
    ("is_one", "names"),
    [
        (True, (
            "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", "aten::conv2d",
            "aten::cudnn_convolution_backward_weight", "aten::convolution_backward",
            "aten::miopen_convolution", "aten::_slow_conv2d_forward", "aten::mkldnn_convolution",
            "torchvision::deform_conv2d", "CudnnConvolutionBackward", "ConvolutionBackward0",
            "aten::cudnn_convolution_relu", "aten::conv_transpose1d",
        )),
        (False, (
            "aten::mm", "aten::convert", "conv2d", "aten::_convert_weight_to_int4pack",
            "mine::converge", "autograd::engine::evaluate_function: AddmmBackward0", "", "aten::",
            "ConvertBackward0", "aten::unfold_backward",
        )),
    ],
)  # fmt: skip
def test_convolutions(is_one, names):
    assert [name for name in names if is_convolution_operator(name) is not is_one] == []


def test_a_convolutions_gemm_kernel_is_not_a_gemm_but_a_products_inside_of_one_is(recording):
    made = recording()
    made.operator("aten::conv2d", 0, 900)
    made.operator("aten::cudnn_convolution", 50, 200)
    made.call(1, 100)
    made.kernel(SGEMM, 2000, 20, correlation=1)
    made.operator("aten::addmm", 400, 100, shapes=[[1], [64, 32], [32, 16]])
    made.call(2, 420)
    made.kernel(SGEMM, 3000, 20, correlation=2)
    made.call(3, 5000)
    made.kernel(SGEMM, 6000, 20, correlation=3)
    trace = made.trace()
    order = trace.rows.gpu.start_ns.argsort()
    assert trace.is_gemm_of_convolution[order].tolist() == [True, False, False]
    assert trace.is_gemm[order].tolist() == [False, True, True]


def test_without_operators_names_have_to_do(recording):
    made = recording()
    made.kernel(SGEMM, 2000, 20, correlation=1)
    trace = made.trace()
    assert trace.is_gemm.tolist() == [True]
    assert trace.is_gemm_of_convolution.tolist() == [False]
