"""Tests of what is passed to the kernel."""

from __future__ import annotations

import json

from gemmetry.domain.names import parse_operation
from gemmetry.providers.triton_provider.plan import make_plan
from gemmetry.providers.triton_provider.tiles import TritonTile

NAMES = ("a", "b", "c", "addend", "bias", "m", "k", "lda", "stride_a", "EVEN_M", "ALPHA", "STEP_1")


def test_absent_tensors_are_constants() -> None:
    plan = make_plan(
        parse_operation("matmul_64x32x48_f16n_f16t_f32t"), TritonTile(64, 32, 32, 4, 2)
    )
    signature = plan.signature(NAMES)
    assert signature["a"] == "*fp16" and signature["c"] == "*fp32"
    assert signature["addend"] == signature["bias"] == signature["ALPHA"] == "constexpr"
    assert plan.integers["lda"] == 64
    assert plan.constants["EVEN_M"] and not plan.constants["EVEN_K"]
    assert plan.arguments(NAMES)[:5] == [None] * 5


def test_divisible_arguments_are_declared() -> None:
    plan = make_plan(
        parse_operation("matmul_33x32x48_f16t_f16t_f32t"), TritonTile(32, 32, 32, 4, 2)
    )
    divisible = {NAMES[position[0]] for position in plan.attributes(NAMES)}
    assert divisible == {"a", "b", "c", "k", "lda", "stride_a"}


def test_large_strides_take_64_bits() -> None:
    plan = make_plan(
        parse_operation("batch_matmul_2x65536x32x65536_f16t_f16t_f32t"),
        TritonTile(32, 32, 32, 4, 2),
    )
    assert plan.signature(NAMES)["stride_a"] == "i64"
    assert plan.signature(NAMES)["lda"] == "i32"
    assert plan.programs == 2 * 2048


def test_an_epilogue_keeps_its_order() -> None:
    name = "batch_matmul_2x64x32x48_e4m3t_e4m3n_bf16n_scalerow_alpha2_beta1_relu_bias"
    plan = make_plan(parse_operation(name), TritonTile(64, 32, 128, 4, 2))
    assert [plan.constants[f"STEP_{i}"] for i in (1, 2, 3, 4)] == ["relu", "bias", None, None]
    assert plan.constants["ROW_SCALING"] and plan.constants["IMPRECISE_STEPS"] == 128
    assert plan.inputs == {"a": 0, "b": 1, "addend": 2, "scale_a": 3, "scale_b": 4, "bias": 5}
    assert json.loads(json.dumps(plan.document()))["constants"]["ALPHA"] == 2
