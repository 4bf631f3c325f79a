"""Tests of the torch provider on the CPU against float64 (CUDA: tests/gpu/test_torch_cuda.py)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.record import Trait
from gemmetry.providers.torch_provider.provider import PROVIDER, TorchProvider
from gemmetry.testing import ProviderConformance

pytest.importorskip("torch", reason="torch is not installed")

CPU = Target(TargetKind.CPU)
H200 = Target(TargetKind.CUDA, "sm_90")


def _operations() -> Iterator[str]:
    floats, scalings = ("f64", "f32", "f16", "bf16"), ("", "_scaletensor", "_scalerow")
    for index, (a, b, c) in enumerate(itertools.product("tn", repeat=3)):
        yield from (f"matmul_33x17x65_{one}{a}_{one}{b}_{one}{c}" for one in floats)
        yield f"matmul_33x17x65_s8{a}_s8{b}_s32{c}_beta1_bias_relu_residual"
        scaling = scalings[index % 3]
        yield f"matmul_33x17x65_e4m3{a}_e4m3{b}_bf16{c}{scaling}"
        yield f"matmul_33x17x65_e4m3{a}_e5m2{b}_f32{c}{scaling}_alpha2_beta1_bias_relu"
    for modifiers in ("alpha2", "beta1", "alpha0p5_beta2", "bias", "relu", "gelu", "residual",
                      "bias_gelu_residual", "alpha2_beta0p5_bias_relu_residual"):  # fmt: skip
        yield from (f"matmul_33x17x65_{one}t_{one}n_{one}n_{modifiers}" for one in ("f32", "bf16"))
        yield f"batch_matmul_3x9x17x20_f32t_f32n_f32t_{modifiers}"
    for a, b in itertools.product("tn", repeat=2):
        yield f"matmul_splitk_33x17x64_f32{a}_f32{b}_f32n_slices4"
        yield f"matmul_splitk_33x17x64_f32{a}_f32{b}_f32n_slices4_alpha2_beta1_bias_gelu"
    for one, modifiers in itertools.product(floats, ("", "_bias_relu", "_relu_residual")):
        types = f"{one}nhwc_{one}hwcf_{one}nhwc"
        yield f"conv2d_2x9x8x16_3x2x8_stride2x1_pad1x0_{types}{modifiers}"
    yield "batch_matmul_3x9x17x20_bf16t_bf16n_bf16t_alpha2_beta0p5_bias_relu_residual"


class TestConformance(ProviderConformance):
    """Every kind of product, format, layout and epilogue."""

    provider_class = PROVIDER
    operations = tuple(_operations())
    refused = ("matmul_37x29x41_tf32t_tf32t_f32t",)
    level = "quick"


def test_convolutions_return_a_new_tensor(launch: Any) -> None:
    name = "conv2d_2x9x8x16_3x2x8_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc"
    assert not launch(PROVIDER(), name, "default", CPU).executable.writes_output
    launched = launch(PROVIDER(), "matmul_33x17x65_s8t_s8n_s32t", "default", CPU,
                      distribution="offset_uniform")  # fmt: skip
    assert launched.executable.writes_output and launched.worst_error() == 0


def test_a_refused_launch_is_a_launch_error(launch: Any) -> None:
    launched = launch(PROVIDER(), "matmul_8x8x8_f32t_f32t_f32t", "default", CPU)
    with pytest.raises(LaunchError, match="matmul_8x8x8"):
        launched.executable.run([launched.buffers[0][:3], launched.buffers[1][:5]], launched.output)


def test_configurations() -> None:
    provider = PROVIDER()
    operation = parse_operation("matmul_8x8x8_f16t_f16t_f16t")
    assert [c.name for c in provider.configurations(operation, CPU)] == ["default"]
    assert [c.name for c in provider.configurations(operation, H200)] == ["default", "cublaslt"]


def test_the_cost_probe_predicts_what_is_larger_than_a_probe() -> None:
    provider = PROVIDER()

    def predicted(name: str, target: Target = CPU) -> float | None:
        dispatch = Dispatch(parse_operation(name), Configuration(), "torch", target)
        return provider.seconds_per_launch(dispatch)

    assert predicted("matmul_64x64x64_f32t_f32t_f32t") is None
    for name in ("matmul_300x300x300_f32t_f32t_f32t", "batch_matmul_9x200x200x200_f32t_f32t_f32t",
                 "conv2d_8x64x64x16_3x3x8_f32nhwc_f32hwcf_f32nhwc"):  # fmt: skip
        assert predicted(name) > 0
    assert predicted("matmul_4096x4096x4096_f32t_f32t_f32t", H200) is None


@pytest.mark.parametrize(
    ("formats", "declares"),
    [("e4m3t_e4m3n_bf16t_beta1", True), ("e4m3t_e4m3n_bf16t", False),
     ("bf16t_bf16n_bf16t_beta1", False)],
)  # fmt: skip
def test_a_scaled_product_declares_that_c_is_added_later(build, formats, declares) -> None:
    name = f"matmul_16x16x16_{formats}"
    if TorchProvider().supports(parse_operation(name), CPU) is not None:
        pytest.skip("torch has no such product here")
    facts = build(TorchProvider(), name, "default", CPU).facts
    assert (Trait.ROUNDS_BEFORE_ADDING in facts.declared) is declares
