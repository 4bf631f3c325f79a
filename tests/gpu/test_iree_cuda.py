"""IREE on an NVIDIA GPU: code for sm_80 or sm_89, run on whatever is there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gemmetry.domain.dtypes import F32
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import TensorSpec
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.iree_provider import PROVIDER

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        importlib.util.find_spec("iree") is None, reason="iree-base-runtime is not installed"
    ),
]

Check = Callable[..., Any]


@pytest.fixture(scope="session")
def gpu() -> Target:
    """The first CUDA device that IREE's runtime finds."""
    if PROVIDER()._compiler_path() is None:
        pytest.skip("iree-base-compiler is not installed")
    for target in PROVIDER().targets():
        if target.kind is TargetKind.CUDA and target.index is not None:
            return target
    pytest.skip("IREE's runtime finds no CUDA device on this machine")


@pytest.mark.parametrize(
    "name",
    [
        "matmul_257x129x65_f32t_f32t_f32t",
        "matmul_257x129x65_f16t_f16t_f16t",
        "matmul_257x129x65_bf16n_bf16n_bf16n_bias_gelu_residual",
        "matmul_256x512x128_f16t_f16n_f32t_alpha0p5_beta2_bias_relu",
        "matmul_256x256x256_f16t_f16t_f16t_accf16",
        "matmul_256x256x256_e4m3t_e4m3n_bf16t",
        "matmul_256x256x256_s8t_s8t_s32t",
        "matmul_256x256x256_f64t_f64t_f64t",
        "batch_matmul_4x128x64x128_f16t_f16t_f16t",
        "matmul_splitk_128x128x3072_f16t_f16t_f16t_slices4",
        "conv2d_1x30x30x64_3x3x128_f16nhwc_f16hwcf_f16nhwc_bias_relu",
        "conv2d_2x30x30x16_3x3x24_stride2x2_pad1x1_f32nhwc_f32hwcf_f32nhwc",
    ],
)
def test_every_configuration_is_right(check: Check, gpu: Target, name: str) -> None:
    provider = PROVIDER()
    operation = parse_operation(name)
    reason = provider.supports(operation, gpu)
    if reason:
        pytest.skip(reason)
    for configuration in provider.configurations(operation, gpu):
        executable = check(provider, name, configuration.name)
        assert executable.writes_output
        executable.close()


def test_code_for_an_older_gpu_is_declared(check: Check, gpu: Target) -> None:
    executable = check(PROVIDER(), "matmul_256x256x256_f16t_f16t_f16t")
    if gpu.architecture not in ("sm_80", "sm_86", "sm_87", "sm_89"):
        assert executable.facts.compiled_for == "sm_80"
        assert any("mma.sync" in note for note in executable.facts.notes)


def test_the_device_keeps_memory_and_order(check: Check, gpu: Target) -> None:
    device = check(PROVIDER(), "matmul_64x64x64_f32t_f32t_f32t").device
    spec = TensorSpec("lhs", (64, 64), F32)
    array = np.arange(4096, dtype=np.float32).reshape(64, 64)
    buffer = device.upload(array, spec)
    clone = device.clone(buffer)
    device.fill_bytes(buffer, 0xAB)
    assert set(device.download(buffer, spec).view(np.uint8).ravel()) == {0xAB}
    assert (device.download(clone, spec) == array).all()
    assert device.free_memory_bytes() > 1 << 30
    assert device.last_level_cache_bytes > 1 << 20
