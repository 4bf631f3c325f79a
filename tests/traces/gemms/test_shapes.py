from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import RequestError
from gemmetry.domain.specs.loader import load_spec
from gemmetry.domain.specs.planning import make_plan
from gemmetry.engine.catalogue import InstalledCatalogue
from gemmetry.traces.gemms import Gemms, spec_text, workload

NVJET = "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN"
SGEMM = "volta_sgemm_64x64_tn"


class Made:
    """A recording whose operators follow one another."""

    def __init__(self, recording):
        self.recording = recording()
        self.number = 0

    def add(self, shapes, lasts=100, *, name="aten::mm", dtype="c10::BFloat16", kernel=NVJET,
            strides=()):  # fmt: skip
        self.number += 1
        at = self.number * 10_000
        dtypes = dtype if isinstance(dtype, list) else [dtype] * len(shapes)
        self.recording.operator(name, at, 50, shapes=shapes, dtypes=dtypes, strides=strides)
        self.recording.launch(kernel, self.number, at=at + 20, lasts=lasts)

    def workload(self):
        return workload(Gemms([self.recording.trace()]).rows())


@pytest.fixture
def made(recording):
    return Made(recording)


@pytest.mark.parametrize(
    ("tensors", "dtype", "strides", "operation"),
    [
        ([[64, 32], [32, 16]], "c10::Half", [[32, 1], [1, 32]],
         "matmul_64x16x32_f16t_f16n_f16t"),
        ([[3, 64, 32], [3, 32, 16]], "float", [[2048, 32, 1], [512, 16, 1]],
         "batch_matmul_3x64x16x32_f32t_f32t_f32t"),
        ([[64, 32], [32, 16], [64, 1]], ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float"],
         [[32, 1], [1, 32], [1, 1]], "matmul_64x16x32_e4m3t_e4m3n_bf16t_scalerow"),
        ([[64, 32], [32, 16]], "signed char", [[32, 1], [16, 1]],
         "matmul_64x16x32_s8t_s8t_s32t"),
    ],
)  # fmt: skip
def test_operations_are_named_as_gemmetry_names_them(made, tensors, dtype, strides, operation):
    name = {2: "aten::mm", 3: "aten::_scaled_mm"}[len(tensors)]
    made.add(tensors, dtype=dtype, strides=strides, name=name)
    (gemm,) = made.workload().gemms
    assert gemm.operation == operation
    assert parse_operation(operation).shape[:3] == (64, 16, 32)


@pytest.mark.parametrize("dtype", ["c10::complex<float>", "unsigned char", "Unknown"])
def test_formats_that_gemmetry_does_not_multiply_are_left_out_with_the_reason(made, dtype):
    made.add([[64, 32], [32, 16]], dtype=dtype, kernel="my_gemm_kernel")
    made.add([[64, 32], [32, 8]])
    load = made.workload()
    [refused] = (gemm for gemm in load.gemms if gemm.operation is None)
    assert f"1 of 1x64x16x32 (50.0%): {refused.reason}." in spec_text(load, ["a.json"])


def test_the_spec_plans_every_gemm_of_the_workload(made, tmp_path):
    made.add([[64, 32], [32, 16]], 100, strides=[[32, 1], [1, 32]])
    made.add([[64, 32], [32, 16]], 100)
    made.add([[2, 8, 8], [2, 8, 8]], 300, dtype="float")
    made.recording.kernel(SGEMM, 10**6, 500)
    load = made.workload()
    text = spec_text(load, ["dir/rank0.pt.trace.json.gz"])
    path = tmp_path / "shapes.yaml"
    path.write_text(text)
    spec = load_spec(path, overrides={"providers": ["numpy"], "device": ["cpu"]})
    assert spec.name == "gemms-rank0"
    plan = make_plan(spec, InstalledCatalogue()).plan
    assert sorted(map(str, plan.operations)) == [
        "batch_matmul_2x8x8x8_f32t_f32t_f32t",
        "matmul_64x16x32_bf16t_bf16n_bf16t",
        "matmul_64x16x32_bf16t_bf16t_bf16t",
    ]
    assert "Shape not known: 1 GEMM, 50.0% of the time." in text
    assert "# 1 call, 0.000 ms, 30.0%" in text
    first = spec_text(load, ["a.json"], top=1)
    assert "2x8x8x8" in first and "64x16x32" not in first
    assert "30.0% of 0.001 ms" in first


def test_names_of_files_cannot_break_out_of_their_comment(made, tmp_path):
    made.add([[64, 32], [32, 16]], 100)
    text = spec_text(made.workload(), ["x\nname: y\u2028[].json"])
    path = tmp_path / "shapes.yaml"
    path.write_text(text)
    assert load_spec(path).name == "gemms-x-name-y"


def test_nothing_to_run_is_an_error_with_the_next_step(made):
    made.recording.kernel(SGEMM, 100, 500)
    load = made.workload()
    assert load.gemms == ()
    with pytest.raises(RequestError, match=r"no GEMM of a\.json has a known shape") as caught:
        spec_text(load, ["a.json"])
    assert "record_shapes" in caught.value.hint


@pytest.mark.parametrize(
    ("paths", "listed", "name"),
    [
        ([f"grid/traces/config_{n}/repeat_01.pt.trace.json" for n in range(4)],
         "4 traces below grid/traces", "traces"),
        (["a/x.json", "b/y.json"], "a/x.json, b/y.json", "trace"),
        ([f"{letter}/x.json" for letter in "abcd"],
         "a/x.json, b/x.json, c/x.json, d/x.json", "trace"),
    ],
)  # fmt: skip
def test_many_files_are_listed_by_their_folder(made, paths, listed, name):
    made.add([[64, 32], [32, 16]], 100)
    lines = spec_text(made.workload(), paths).splitlines()
    assert f"# From: {listed}" in lines
    assert f"name: gemms-{name}" in lines
