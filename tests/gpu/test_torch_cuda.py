"""The torch provider on a GPU, every dtype, layout and epilogue against float64."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gemmetry.domain.dispatch import Target, parse_operation
from gemmetry.domain.errors import OutOfMemoryError, UnsupportedError
from gemmetry.domain.operation import F32, TensorSpec
from gemmetry.providers.torch_provider.provider import PROVIDER

pytestmark = pytest.mark.gpu

Check = Callable[..., Any]
EPILOGUES = ("alpha2", "beta1", "alpha0p5_beta2", "bias", "relu", "gelu", "residual",
             "bias_gelu_residual", "alpha2_beta0p5_bias_relu_residual")  # fmt: skip
PLAIN = ("f64_f64", "f32_f32", "tf32_f32", "f16_f16", "f16_f32", "bf16_bf16", "bf16_f32")
LAYOUTS = list(itertools.product("tn", repeat=3))


@pytest.mark.parametrize("types", PLAIN)
def test_layouts(check: Check, types: str) -> None:
    inputs, result = types.split("_")
    for a, b, c in LAYOUTS:
        check(PROVIDER(), f"matmul_257x129x65_{inputs}{a}_{inputs}{b}_{result}{c}")


@pytest.mark.parametrize("types", PLAIN)
@pytest.mark.parametrize("modifiers", EPILOGUES)
def test_epilogues(check: Check, types: str, modifiers: str) -> None:
    inputs, result = types.split("_")
    names = f"{inputs}t_{inputs}n_{result}"
    for c in "tn":
        check(PROVIDER(), f"matmul_129x65x64_{names}{c}_{modifiers}")
        check(PROVIDER(), f"batch_matmul_3x33x65x64_{names}{c}_{modifiers}")
        check(PROVIDER(), f"matmul_splitk_33x65x64_{names}{c}_slices4_{modifiers}")


def test_f32_is_not_tf32_and_f16_accumulates_as_requested(check: Check) -> None:
    # One worker runs these in turn, so each must set torch's switches anew.
    for _ in range(2):
        check(PROVIDER(), "matmul_256x256x4096_f32t_f32t_f32t", tier="warn")
        check(PROVIDER(), "matmul_256x256x4096_tf32t_tf32t_f32t", tier="warn")
        check(PROVIDER(), "matmul_256x256x4096_f16t_f16t_f16t", tier="warn")
        check(PROVIDER(), "matmul_256x256x4096_f16t_f16t_f16t_accf16")


def test_cublaslt(check: Check) -> None:
    for name in ("matmul_257x129x65_bf16t_bf16n_bf16t", "batch_matmul_3x64x64x64_f16t_f16t_f16t"):
        check(PROVIDER(), name, "cublaslt")
        check(PROVIDER(), name, "default")


@pytest.mark.parametrize("scaling", ["", "_scaletensor", "_scalerow"])
def test_fp8(check: Check, scaling: str) -> None:
    for types, c in itertools.product(("e4m3t_e4m3n", "e4m3t_e5m2n", "e5m2t_e4m3n"), "tn"):
        for result in ("bf16", "f16", "f32"):
            for epilogue in ("", "_alpha2_beta1_bias_relu", "_bias_gelu"):
                check(PROVIDER(), f"matmul_144x64x160_{types}_{result}{c}{scaling}{epilogue}")


def test_integers_are_exact(check: Check) -> None:
    for c in "tn":
        check(PROVIDER(), f"matmul_40x64x160_s8t_s8n_s32{c}")
        check(PROVIDER(), f"matmul_40x64x160_s8t_s8n_s32{c}_beta1_bias_relu_residual")


def test_integer_layouts_are_right_or_unsupported(check: Check) -> None:
    # cuBLASLt has s8 kernels for some sizes and layouts only, which shows when it is called.
    for a, b, c in LAYOUTS:
        with contextlib.suppress(UnsupportedError):
            check(PROVIDER(), f"matmul_48x32x64_s8{a}_s8{b}_s32{c}")


@pytest.mark.parametrize("dtype", ["f32", "tf32", "f16", "bf16"])
def test_conv2d(check: Check, dtype: str) -> None:
    result = "f32" if dtype == "tf32" else dtype
    types = f"{dtype}nhwc_{dtype}hwcf_{result}nhwc"
    for epilogue in ("", "_bias_relu"):
        check(PROVIDER(), f"conv2d_2x17x16x32_3x3x64_stride2x1_pad1x1_{types}{epilogue}")


def test_event_times_leave_the_host_out(check: Check, gpu: Target) -> None:
    executable = check(PROVIDER(), "matmul_512x512x512_bf16t_bf16t_bf16t")
    operation = parse_operation("matmul_512x512x512_bf16t_bf16t_bf16t")
    device = executable.device
    buffers = [device.allocate(spec) for spec in operation.inputs]
    for buffer in buffers:
        device.fill_bytes(buffer, 0x3C)
    output = device.allocate(operation.output)
    calls = [lambda: executable.run(buffers, output)] * 100
    device.time_calls(calls[:10])
    durations, method = device.time_calls(calls)
    assert method == "events"
    assert len(durations) == 100
    median = float(np.median(durations))
    # 0.27 GFLOP: far less than the 30 µs and more that launching it from Python takes.
    assert 1_000 < median < 25_000
    assert float(np.quantile(durations, 0.9)) < 3 * median


@pytest.mark.alone  # Other processes change how much memory is free.
def test_memory(check: Check, gpu: Target) -> None:
    from gemmetry.hardware.torch_device import open_device

    device = open_device(gpu)
    assert device.last_level_cache_bytes >= 2**21
    free = device.free_memory_bytes()
    spec = TensorSpec("lhs", (1024, 1024, 64), F32)
    buffer = device.allocate(spec)
    assert device.free_memory_bytes() <= free - spec.bytes + 2**22
    copy = device.clone(buffer)
    assert copy.data_ptr() != buffer.data_ptr()
    with pytest.raises(OutOfMemoryError):
        device.allocate(TensorSpec("lhs", (2**20, 2**20), F32))
    del buffer, copy
    device.release()


def test_float64_reference_in_tiles(gpu: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmetry.hardware.torch_device import TorchDevice, open_device

    device = open_device(gpu)
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 70, 50)), rng.standard_normal((2, 50, 90))
    multiply = device.float64_matmul()
    assert multiply is not None
    np.testing.assert_allclose(multiply(a, b), a @ b, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(TorchDevice, "free_memory_bytes", lambda self: 3 * 8 * 50 * 7)
    np.testing.assert_allclose(multiply(a, b), a @ b, rtol=1e-12, atol=1e-12)
