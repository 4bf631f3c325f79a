from __future__ import annotations

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.domain.specs.loader import make_spec
from gemmetry.domain.specs.operations import FIRST_RUN_CPU, FIRST_RUN_GPU, expand, legacy

LEGACY = legacy("iree")


def names(defaults=FIRST_RUN_CPU, **values):
    return [str(operation) for operation in expand(make_spec(values), defaults).operations]


def test_the_first_run():
    assert names() == [
        "matmul_256x256x256_f32t_f32t_f32t",
        "matmul_512x512x512_f32t_f32t_f32t",
        "matmul_257x129x65_f32t_f32t_f32t",
    ]
    assert names(FIRST_RUN_GPU)[0] == "matmul_1024x1024x1024_bf16t_bf16t_bf16t"


def test_the_dispatch_profilers_set_has_seventeen_operations():
    found = names(LEGACY)
    assert len(found) == len(set(found)) == 17
    assert "matmul_splitk_128x128x12288_f16t_f16t_f16t_slices16" in found
    assert "batch_matmul_16x512x64x512_f32t_f32t_f32t" in found
    assert sum(name.startswith("matmul_") and "splitk" not in name for name in found) == 9


def test_the_documents_sweep():
    found = names(problem_m="64:1024:128", problem_n="64:1024:128", problem_k="4096",
                  dtypes="f16,f32")  # fmt: skip
    assert len(found) == 2 * 8 * 8
    assert found[0] == "matmul_64x64x4096_f16t_f16t_f16t"
    assert found[-1] == "matmul_960x960x4096_f32t_f32t_f32t"


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"problem_m": 64, "problem_n": 32}, "Add --problem-k,"),
        ({"problem_k": 64}, "Add --problem-m and --problem-n,"),
        ({"problem_b": 4}, "Add --problem-m and --problem-n and --problem-k,"),
        ({"shapes": "8x8x8", "problem_n": 4}, "Add --problem-m and --problem-k,"),
    ],
)
def test_a_size_left_out_is_named(values, missing):
    with pytest.raises(RequestError, match="a product has M, N and K") as found:
        names(**values)
    assert missing in found.value.hint


@pytest.mark.parametrize("shapes", ["3", "64x64x64", "llm"])
def test_shapes_of_products_are_none_of_convolutions(shapes):
    with pytest.raises(RequestError, match="not the shape of a convolution"):
        names(conv_shapes=shapes)


def test_batches_alone_are_those_of_the_shapes():
    found = names(shapes="8x16x32", problem_b="2,4", operation_kind="batch_matmul")
    assert found == [f"batch_matmul_{b}x8x16x32_f32t_f32t_f32t" for b in (2, 4)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"shapes": "2x3x4"}, ["matmul_2x3x4_f32t_f32t_f32t"]),
        ({"shapes": "5x2x3x4"}, ["batch_matmul_5x2x3x4_f32t_f32t_f32t"]),
        ({"problem_m": 2, "problem_b": "3,4", "problem_n": 2, "problem_k": 2},
         ["batch_matmul_3x2x2x2_f32t_f32t_f32t", "batch_matmul_4x2x2x2_f32t_f32t_f32t"]),
        ({"conv_shapes": "1x8x8x4_3x3x8"},
         ["conv2d_1x8x8x4_3x3x8_stride1x1_pad0x0_f32nhwc_f32hwcf_f32nhwc"]),
        ({"shapes": "2x3x4", "split_k_slices": "2"},
         ["matmul_splitk_2x3x4_f32t_f32t_f32t_slices2"]),
        ({"shapes": "2x3x4", "operation_kind": "batch_matmul"},
         ["batch_matmul_16x2x3x4_f32t_f32t_f32t"]),
        ({"shapes": "2x2x2", "problem_m": "2,4", "problem_n": 2, "problem_k": 2},
         ["matmul_2x2x2_f32t_f32t_f32t", "matmul_4x2x2_f32t_f32t_f32t"]),
        ({"shapes": "2x2x2", "dtypes": "s8,fp8,tf32"},
         ["matmul_2x2x2_s8t_s8t_s32t", "matmul_2x2x2_e4m3t_e4m3t_bf16t",
          "matmul_2x2x2_tf32t_tf32t_f32t"]),
        ({"shapes": "2x2x2", "dtypes": "f16", "result_dtype": "f16,f32", "accumulator": "f16"},
         ["matmul_2x2x2_f16t_f16t_f16t_accf16", "matmul_2x2x2_f16t_f16t_f32t_accf16"]),
        ({"shapes": "2x2x2", "layouts": "nt", "result_layout": "n", "alpha": 0.5, "beta": 1},
         ["matmul_2x2x2_f32n_f32t_f32n_alpha0p5_beta1"]),
        ({"shapes": "2x2x2", "dtypes": "e4m3", "scaling": "row", "epilogues": "bias+relu"},
         ["matmul_2x2x2_e4m3t_e4m3t_bf16t_scalerow_bias_relu"]),
        ({"matrix_sizes": [2], "precisions": "fp16", "dtypes": "f32", "batch_sizes": "1,3"},
         ["matmul_2x2x2_f32t_f32t_f32t", "matmul_2x2x2_f16t_f16t_f16t",
          "batch_matmul_3x2x2x2_f32t_f32t_f32t", "batch_matmul_3x2x2x2_f16t_f16t_f16t"]),
    ],
)  # fmt: skip
def test_axes(values, expected):
    assert sorted(names(**values)) == sorted(expected)


def test_all_kinds_have_shapes():
    kinds = {name.split("_")[0] for name in names(operation_kind="all")}
    assert kinds == {"matmul", "batch", "conv2d"}
    assert sum("splitk" in name for name in names(operation_kind="all")) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shapes": "5x2x3x4", "operation_kind": "matmul"}, "batch"),
        ({"conv_shapes": "1x8x8x4_3x3x8", "operation_kind": "matmul"}, "convolution"),
        ({"shapes": "2x3x4", "operation_kind": "conv2d"}, "only kind is conv2d"),
        ({"shapes": "2x3x4", "dtypes": "f32:s8:f32"}, "cannot be mixed"),
        ({"shapes": "nothere.csv"}, "nothere"),
    ],
)
def test_what_does_not_fit_is_refused(values, message):
    with pytest.raises(RequestError, match=message):
        names(**values)


def test_equal_requests_have_equal_documents():
    rest = {"problem_n": 64, "problem_k": 64}
    one = expand(make_spec({"problem_m": "64:256:64", "dtypes": "fp32", **rest}), FIRST_RUN_CPU)
    same = expand(make_spec({"problem_m": [64, 128, 192], "dtypes": "f32", **rest}), FIRST_RUN_CPU)
    other = expand(make_spec({"problem_m": "64:257:64", "dtypes": "fp32", **rest}), FIRST_RUN_CPU)
    assert one.document == same.document
    assert one.document != other.document
