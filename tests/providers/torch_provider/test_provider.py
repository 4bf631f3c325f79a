"""Tests of the torch provider on the CPU against float64 (CUDA: tests/gpu/test_torch_cuda.py)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind
from gemmetry.domain.errors import LaunchError, UnsupportedError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import Trait
from gemmetry.numerics.bounds import bound_rule
from gemmetry.numerics.references import compute_reference
from gemmetry.providers.torch_provider.provider import PROVIDER, TorchProvider

pytest.importorskip("torch", reason="torch is not installed")

CPU = Target(TargetKind.CPU)
H200 = Target(TargetKind.CUDA, "sm_90")

FLOATS = ("f64", "f32", "f16", "bf16")
EPILOGUES = ("alpha2", "beta1", "alpha0p5_beta2", "bias", "relu", "gelu", "residual",
             "bias_gelu_residual", "alpha2_beta0p5_bias_relu_residual")  # fmt: skip


def assert_right(launched: Any) -> None:
    reference = compute_reference(launched.operation, launched.inputs)
    error = np.abs(launched.logical_result() - reference.value)
    is_integer = launched.operation.signature.lhs.is_integer
    bound = 0 if is_integer else bound_rule(launched.operation, reference).fail(reference)
    assert (error <= bound).all(), f"{launched.operation}: {(error - bound).max()} above the bound"


@pytest.mark.parametrize("dtype", FLOATS)
def test_layouts(launch: Any, dtype: str) -> None:
    for a, b, c in itertools.product("tn", repeat=3):
        launched = launch(
            PROVIDER(), f"matmul_33x17x65_{dtype}{a}_{dtype}{b}_{dtype}{c}", "default", CPU
        )
        assert launched.result is launched.output
        assert_right(launched)


@pytest.mark.parametrize("modifiers", EPILOGUES)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_epilogues(launch: Any, dtype: str, modifiers: str) -> None:
    types = f"{dtype}t_{dtype}n_{dtype}"
    assert_right(launch(PROVIDER(), f"matmul_33x17x65_{types}n_{modifiers}", "default", CPU))
    assert_right(launch(PROVIDER(), f"batch_matmul_3x9x17x20_{types}t_{modifiers}", "default", CPU))


@pytest.mark.parametrize("modifiers", ["", "_alpha2_beta1_bias_gelu"])
def test_split_k(launch: Any, modifiers: str) -> None:
    for a, b in itertools.product("tn", repeat=2):
        name = f"matmul_splitk_33x17x64_f32{a}_f32{b}_f32n_slices4{modifiers}"
        launched = launch(PROVIDER(), name, "default", CPU)
        assert launched.result is launched.output
        assert_right(launched)


def test_integers_are_exact(launch: Any) -> None:
    for a, b, c in itertools.product("tn", repeat=3):
        name = f"matmul_33x17x65_s8{a}_s8{b}_s32{c}_beta1_bias_relu_residual"
        launched = launch(PROVIDER(), name, "default", CPU, distribution="offset_uniform")
        assert launched.worst_error() == 0


@pytest.mark.parametrize("scaling", ["", "_scaletensor", "_scalerow"])
def test_fp8(launch: Any, scaling: str) -> None:
    for a, b, c in itertools.product("tn", repeat=3):
        assert_right(
            launch(PROVIDER(), f"matmul_33x17x65_e4m3{a}_e4m3{b}_bf16{c}{scaling}", "default", CPU)
        )
        name = f"matmul_33x17x65_e4m3{a}_e5m2{b}_f32{c}{scaling}_alpha2_beta1_bias_relu"
        assert_right(launch(PROVIDER(), name, "default", CPU))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("modifiers", ["", "_bias_relu", "_relu_residual"])
def test_conv2d(launch: Any, dtype: str, modifiers: str) -> None:
    types = f"{dtype}nhwc_{dtype}hwcf_{dtype}nhwc"
    name = f"conv2d_2x9x8x16_3x2x8_stride2x1_pad1x0_{types}{modifiers}"
    launched = launch(PROVIDER(), name, "default", CPU)
    assert not launched.executable.writes_output
    assert_right(launched)


def test_building_what_is_unsupported_raises(workspace: Workspace) -> None:
    operation = parse_operation("matmul_8x8x8_f16t_f16t_f32t")
    with pytest.raises(UnsupportedError, match="f32"):
        PROVIDER().build(Dispatch(operation, Configuration(), "torch", CPU), workspace)


def test_a_refused_launch_is_a_launch_error(launch: Any) -> None:
    launched = launch(PROVIDER(), "matmul_8x8x8_f32t_f32t_f32t", "default", CPU)
    with pytest.raises(LaunchError, match="matmul_8x8x8"):
        launched.executable.run([launched.buffers[0][:3], launched.buffers[1][:5]], launched.output)


def test_configurations() -> None:
    provider = PROVIDER()
    operation = parse_operation("matmul_8x8x8_f16t_f16t_f16t")
    assert [c.name for c in provider.configurations(operation, CPU)] == ["default"]
    assert [c.name for c in provider.configurations(operation, H200)] == ["default", "cublaslt"]
    found = provider.parse_configuration("cublaslt", operation, H200)
    assert found is not None and found.parameters == {"library": "cublaslt"}
    assert provider.parse_configuration("nonsense", operation, H200) is None


def test_the_cost_probe_predicts_what_is_larger_than_a_probe() -> None:
    provider = PROVIDER()

    def predicted(name: str, target: Target = CPU) -> float | None:
        dispatch = Dispatch(parse_operation(name), Configuration(), "torch", target)
        return provider.seconds_per_launch(dispatch)

    assert predicted("matmul_64x64x64_f32t_f32t_f32t") is None
    for name in (
        "matmul_300x300x300_f32t_f32t_f32t",
        "batch_matmul_9x200x200x200_f32t_f32t_f32t",
        "conv2d_8x64x64x16_3x3x8_f32nhwc_f32hwcf_f32nhwc",
    ):
        found = predicted(name)
        assert found is not None and found > 0
    assert predicted("matmul_4096x4096x4096_f32t_f32t_f32t", H200) is None


def test_a_provider_is_complete() -> None:
    provider: TorchProvider = PROVIDER({"threads": 1})
    assert provider.available() is None
    assert provider.targets()[0] == CPU
    assert "torch" in provider.versions()
    assert not provider.compiles_ahead(CPU)


@pytest.mark.parametrize(
    ("name", "declares"),
    [
        ("matmul_16x16x16_e4m3t_e4m3n_bf16t_beta1", True),
        ("matmul_16x16x16_e4m3t_e4m3n_bf16t", False),
        ("matmul_16x16x16_bf16t_bf16n_bf16t_beta1", False),
    ],
)
def test_a_scaled_product_declares_that_c_is_added_later(
    name: str, declares: bool, workspace: Workspace
) -> None:
    operation = parse_operation(name)
    if TorchProvider().supports(operation, CPU) is not None:
        pytest.skip("torch has no such product here")
    executable = TorchProvider().build(
        Dispatch(operation, Configuration(), "torch", CPU), workspace
    )
    assert (Trait.ROUNDS_BEFORE_ADDING in executable.facts.declared) is declares
