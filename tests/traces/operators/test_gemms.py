from __future__ import annotations

import json

import pytest

from gemmetry.formats.events import OperatorArguments
from gemmetry.traces.operators.gemms import GemmShape, gemm_shape, is_gemm_operator, unpacked_for

BF16 = "c10::BFloat16"


def arguments(*tensors, values=None):
    """Each tensor is (shape, dtype) or (shape, dtype, strides)."""
    return OperatorArguments(
        shapes=json.dumps([tensor[0] for tensor in tensors]),
        dtypes=json.dumps([tensor[1] for tensor in tensors]),
        strides=json.dumps([tensor[2] if len(tensor) > 2 else [] for tensor in tensors]),
        values=json.dumps(values or []),
    )


def test_mm_with_its_layouts():
    recorded = arguments(([4, 8], BF16, [8, 1]), ([8, 16], BF16, [1, 8]))
    assert gemm_shape("aten::mm", recorded) == GemmShape(4, 16, 8, 1, "bf16", "tn")
    recorded = arguments(([4, 8], BF16, [1, 4]), ([8, 16], BF16, [16, 1]))
    assert gemm_shape("aten::mm", recorded) == GemmShape(4, 16, 8, 1, "bf16", "nt")


def test_addmm_and_baddbmm_have_the_addend_first():
    recorded = arguments(([16], "float"), ([4, 8], "float"), ([8, 16], "float"), ([], "Scalar"))
    assert gemm_shape("aten::addmm", recorded) == GemmShape(4, 16, 8, 1, "f32")
    recorded = arguments(([1], "float"), ([3, 4, 8], "float"), ([3, 8, 16], "float"))
    assert gemm_shape("aten::baddbmm", recorded) == GemmShape(4, 16, 8, 3, "f32")


@pytest.mark.parametrize("name", ["aten::linear", "mkldnn::_linear_pointwise"])
def test_the_weight_of_linear_is_transposed(name):
    recorded = arguments(([2, 5, 8], BF16, [40, 8, 1]), ([16, 8], BF16, [8, 1]), ([16], BF16, [1]))
    assert gemm_shape(name, recorded) == GemmShape(10, 16, 8, 1, "bf16", "tn")


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([2, 5, 8], [8, 16], (10, 16, 8, 1)),
        ([2, 5, 8], [2, 8, 16], (5, 16, 8, 2)),
        ([7, 1, 5, 8], [3, 8, 16], (5, 16, 8, 21)),
        ([8], [8, 16], (1, 16, 8, 1)),
        ([5, 8], [8], (5, 1, 8, 1)),
        ([8], [8], (1, 1, 8, 1)),
    ],
)
def test_matmul_follows_torch_in_vectors_and_batches(left, right, expected):
    shape = gemm_shape("aten::matmul", arguments((left, "float"), (right, "float")))
    assert shape is not None
    assert shape[:4] == expected


def test_mv_and_dot_are_gemms_of_a_column():
    assert gemm_shape("aten::mv", arguments(([5, 8], "float"), ([8], "float")))[:3] == (5, 1, 8)
    assert gemm_shape("aten::dot", arguments(([8], "float"), ([8], "float")))[:3] == (1, 1, 8)


@pytest.mark.parametrize(
    ("factors", "scaling"),
    [([], "tensor"), ([1], "tensor"), ([64, 1], "row"), ([64, 4], "block")],
)
def test_scaled_mm_shows_its_scaling(factors, scaling):
    recorded = arguments(
        ([64, 128], "c10::Float8_e4m3fn", [128, 1]),
        ([128, 32], "c10::Float8_e5m2", [1, 128]),
        (factors, "float"),
        (factors, "float"),
    )
    expected = GemmShape(64, 32, 128, 1, "e4m3:e5m2", "tn", scaling)
    assert gemm_shape("aten::_scaled_mm", recorded) == expected


@pytest.mark.parametrize("name", ["addmm_", "baddbmm_", "addbmm_", "addmv_"])
def test_products_that_overwrite_their_addend(name):
    lead = [3] if "bmm" in name else []
    right = [8] if name == "addmv_" else [*lead, 8, 16]
    recorded = arguments(([4, 16], BF16), ([*lead, 4, 8], BF16), (right, BF16), ([], "Scalar"))
    assert is_gemm_operator(f"aten::{name}")
    assert (
        gemm_shape(f"aten::{name}", recorded)
        == gemm_shape(f"aten::{name[:-1]}", recorded)
        is not None
    )


@pytest.mark.parametrize(
    ("factors", "scaling"),
    [([[]], "tensor"), ([[1]], "tensor"), ([[64, 1]], "row"), ([[64, 4], [1]], "block")],
)
def test_lists_of_factors_show_the_scaling(factors, scaling):
    recorded = arguments(
        ([64, 128], "c10::Float8_e4m3fn", [128, 1]),
        ([128, 32], "c10::Float8_e4m3fn", [1, 128]),
        (factors, "TensorList"),
    )
    assert gemm_shape("aten::_scaled_mm_v2", recorded).scaling == scaling


def test_integers_and_complex_numbers():
    recorded = arguments(([4, 8], "signed char"), ([8, 16], "signed char"))
    assert gemm_shape("aten::_int_mm", recorded).dtype == "s8"
    recorded = arguments(([4, 8], "c10::complex<float>"), ([8, 16], "c10::complex<float>"))
    shape = gemm_shape("aten::mm", recorded)
    assert shape.dtype == "c64"
    assert shape.flops == 8 * 4 * 8 * 16


def test_flops_count_a_product_and_a_sum_each():
    assert GemmShape(3, 5, 7, 2).flops == 2 * 2 * 3 * 5 * 7


@pytest.mark.parametrize(
    ("shape", "strides", "letter"),
    [
        ([4, 8], [8, 1], "t"), ([4, 8], [10, 1], "t"), ([4, 8], [1, 4], "n"),
        ([4, 8], [1, 9], "n"), ([4, 8], [2, 16], None), ([4, 8], [0, 1], None),
        ([1, 8], [1, 1], "t"), ([4, 1], [1, 1], "t"), ([4, 1], [1, 4], "n"), ([4, 8], [], None),
    ],
)  # fmt: skip
def test_strides_give_the_layout(shape, strides, letter):
    other = ([shape[1], 6], BF16, [6, 1])
    found = gemm_shape("aten::mm", arguments((shape, BF16, strides), other))
    assert found.layout == (None if letter is None else f"{letter}t")


@pytest.mark.parametrize(
    "recorded",
    [
        OperatorArguments(),
        OperatorArguments(shapes="[[4, 8]]"),
        OperatorArguments(shapes="[[4, 8], [9, 16]]"),
        OperatorArguments(shapes="[[4, 0], [0, 16]]"),
        OperatorArguments(shapes="[[[4, 8]], [8, 16]]"),
        OperatorArguments(shapes='["x", null]'),
        OperatorArguments(shapes="{"),
        OperatorArguments(shapes="[" * 100_000),
        OperatorArguments(shapes="[[-4, 8], [8, 16]]"),
    ],
)
def test_damaged_arguments_are_ignored(recorded):
    assert gemm_shape("aten::mm", recorded) is None


def test_operators_of_other_libraries_need_one_reading():
    a, b = ([4, 8], BF16, [8, 1]), ([16, 8], BF16, [8, 1])
    assert gemm_shape("aiter::gemm_a16w16", arguments(a, b)) == GemmShape(4, 16, 8, 1, "bf16", "tn")
    out = ([4, 16], BF16, [16, 1])
    found = gemm_shape("_C::cutlass_scaled_mm", arguments(out, a, ([8, 16], BF16, [1, 8])))
    assert found == GemmShape(4, 16, 8, 1, "bf16", "tn")
    # The result is square as well: read as (a, b) it would be another product.
    out, a, b = ([4, 4], BF16), ([4, 8], BF16), ([8, 4], BF16)
    assert gemm_shape("_C::cutlass_scaled_mm", arguments(out, a, b))[:3] == (4, 4, 8)
    square = ([8, 8], BF16, [8, 1])
    found = gemm_shape("lib::my_gemm", arguments(([4, 8], BF16, [8, 1]), square))
    assert found == GemmShape(4, 8, 8, 1, "bf16", None)
    assert gemm_shape("lib::my_gemm", arguments(([4, 8], BF16), ([9, 7], BF16))) is None


@pytest.mark.parametrize(
    "name",
    [
        "aten::add", "aten::conv2d", "aten::upsample_bilinear2d", "record_param_comms",
        "autograd::engine::evaluate_function: MmBackward0", "MmBackward0", "c10d::all_comm",
        "vllm::fused_moe_gemm", "lib::linear_backward", "lib::bilinear", "aten::_grouped_mm",
        "lib::quantize_linear", "mm",
    ],
)  # fmt: skip
def test_what_is_not_a_gemm_operator(name):
    assert not is_gemm_operator(name)
    assert gemm_shape(name, arguments(([4, 8], BF16), ([8, 16], BF16))) is None


U8, FP4, WORD = "unsigned char", "c10::Float4_e2m1fn_x2", "int"


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        # Two numbers of fp4 in a byte: k is twice what the sizes show.
        ("aten::_scaled_mm", ([64, 512], FP4, [512, 1]), ([512, 96], FP4, [1, 512]),
         (64, 96, 1024, "e2m1", "tn")),
        ("aten::_scaled_mm", ([64, 512], FP4), ([512, 96], FP4), (64, 96, 1024, "e2m1", None)),
        # They follow each other along the consecutive elements.
        ("aten::_scaled_mm", ([64, 512], FP4, [512, 1]), ([1024, 48], FP4, [48, 1]),
         (64, 96, 1024, "e2m1", "tt")),
        ("aten::_scaled_mm", ([64, 1024], "c10::Float8_e4m3fn"), ([512, 96], FP4),
         (64, 96, 1024, "e4m3:e2m1", None)),
        # Bytes of other libraries, by the operator's name or by the sizes.
        ("flashinfer::mm_fp4", ([64, 512], U8), ([512, 96], U8), (64, 96, 1024, "e2m1", None)),
        ("aiter::gemm_a4w4", ([64, 512], U8), ([96, 512], U8), (64, 96, 1024, "e2m1", None)),
        ("aiter::gemm_a8w8", ([64, 512], U8), ([96, 512], U8), (64, 96, 512, "u8", None)),
        ("bnb::gemm_4bit", ([64, 512], BF16), ([96, 256], U8), (64, 96, 512, "bf16:s4", None)),
        ("x::gemm", ([64, 512], BF16), ([96, 256], U8), (64, 96, 512, "bf16:s4", None)),
        ("x::w8a16_gemm", ([64, 512], BF16), ([96, 512], U8), (64, 96, 512, "bf16:u8", None)),
        # Words: 8 numbers along n or k.
        ("_C::awq_gemm", ([16, 512], BF16), ([512, 12], WORD), (16, 96, 512, "bf16:s4", None)),
        ("_C::gptq_gemm", ([16, 512], BF16), ([64, 96], WORD), (16, 96, 512, "bf16:s4", None)),
        ("_C::gptq_gemm", ([16, 512], BF16), ([128, 96], WORD), (16, 96, 512, "bf16:s8", None)),
        ("x::gemm", ([16, 512], WORD), ([512, 96], WORD), (16, 96, 512, "s32", None)),
    ],
)  # fmt: skip
def test_packed_operands_are_unpacked(name, a, b, expected):
    shape = gemm_shape(name, arguments(a, b))
    assert shape is not None
    assert (shape.m, shape.n, shape.k, shape.dtype, shape.layout) == expected


def test_words_of_unknown_numbers_have_no_shape():
    assert gemm_shape("x::gemm", arguments(([16, 512], BF16), ([512, 96], WORD))) is None


def test_bytes_that_a_kernel_of_fp4_multiplies():
    shape = GemmShape(64, 96, 512, dtype="u8")
    assert unpacked_for(shape, "e2m1")[:3] == (64, 96, 1024)
    assert unpacked_for(shape, None) == shape
    assert unpacked_for(GemmShape(64, 96, 512, dtype="e2m1"), "e2m1").k == 512
