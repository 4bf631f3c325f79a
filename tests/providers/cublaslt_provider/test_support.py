from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.names import parse_operation
from gemmetry.providers.cublaslt_provider.provider import reason_against

H200 = Target(TargetKind.CUDA, "sm_90", 0)
BF16 = "matmul_64x64x64_bf16t_bf16n_bf16t"
FP8 = "matmul_64x64x64_e4m3t_e4m3n_bf16t"


def _refusal(name: str, target: Target = H200) -> str:
    return reason_against(parse_operation(name), target) or ""


@pytest.mark.parametrize(
    ("target", "name", "reason"),
    [
        (Target(TargetKind.CPU), BF16, "NVIDIA"),
        (Target(TargetKind.HIP, "gfx942", 0), BF16, "NVIDIA"),
        (Target(TargetKind.CUDA, "sm_90", None), BF16, "chooses its kernels on the device"),
        (Target(TargetKind.CUDA, "sm_75", 0), BF16, "no bf16 tensor cores"),
        (Target(TargetKind.CUDA, "sm_86", 0), FP8, "no fp8 tensor cores"),
        (Target(TargetKind.CUDA, "sm_89", 0), f"{FP8}_scalerow", "on sm_90 only"),
        (Target(TargetKind.CUDA, "sm_100", 0), f"{FP8}_vs1x128", "on sm_90 only"),
    ],
)
def test_devices_that_lack_something(target: Target, name: str, reason: str) -> None:
    assert reason in _refusal(name, target)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("matmul_splitk_16x8x60_f32t_f32n_f32n_slices5", "configurations of matmul"),
        ("conv2d_1x8x8x8_3x3x8_f16nhwc_f16hwcf_f16nhwc", "not conv2d"),
        (f"{BF16}_accbf16", "accumulates in bf16"),
        ("matmul_64x64x64_f16t_f16n_f32t_accf16", "accumulates in f16"),
        ("matmul_64x64x64_f16t_bf16n_f32t", "no product of f16 and bf16"),
        ("matmul_64x64x64_f32t_f32n_f16t", "returns f32, not f16"),
        ("matmul_64x64x64_bf16t_bf16n_bf16t_scaletensor", "scales fp8 operands only"),
        ("matmul_64x64x64_e2m1t_e2m1n_bf16t_vs16_e4m3", "scales fp8 operands only"),
        ("matmul_64x64x64_e4m3fnuzt_e4m3fnuzn_bf16t", "no product of e4m3fnuz"),
        ("matmul_64x64x64_e5m2t_e5m2n_bf16t", "two e5m2"),
        ("matmul_64x64x64_e4m3t_e4m3n_e4m3t", "without a factor of the result"),
        ("matmul_64x64x64_e4m3t_e4m3t_bf16t", "layouts t, n"),
        ("matmul_64x40x64_e4m3t_e4m3n_bf16t", "K and N in multiples of 16"),
        ("matmul_40x64x64_e4m3t_e4m3n_bf16n", "K and M in multiples of 16"),
        ("matmul_64x64x40_e4m3t_e4m3n_bf16t", "multiples of 16"),
        ("batch_matmul_3x64x64x64_e4m3t_e4m3n_bf16t_scalerow", "not for batches"),
        (f"{FP8}_vs32_e8m0", "of 1x128 and 128x128, not vs32_e8m0"),
        ("matmul_128x128x512_e4m3t_e4m3n_bf16t_vs128x128", "not vs128x128"),
        ("matmul_64x64x128_e4m3t_e5m2n_bf16t_vs1x128", "for e4m3 only"),
        ("matmul_64x64x128_e4m3t_e4m3n_f16t_vs1x128", "returns bf16 or f32"),
        ("matmul_64x64x64_e4m3t_e4m3n_bf16t_vs1x128", "K in multiples of 128"),
        ("matmul_64x64x128_e4m3t_e4m3n_bf16t_vs1x128_vs128x128", "K in multiples of 512"),
        ("matmul_24x64x128_e4m3t_e4m3n_bf16t_vs1x128", "M and N in multiples of 16"),
        ("matmul_64x62x64_s8t_s8n_s32t", "K and N in multiples of 4"),
        ("matmul_64x64x64_s8t_s8n_s32t_relu", "no epilogue"),
        (f"{BF16}_gelu", "by tanh"),
        (f"{BF16}_relu_bias", "relu last"),
        (f"{BF16}_beta1_residual", "either beta·C or the residual"),
        ("matmul_64x64x64_bf16t_bf16n_bf16n_bias", "which is M here"),
        ("matmul_64x64x64_e4m3t_e4m3n_f32t_bias", "bf16, not f32"),
    ],
)
def test_what_the_library_does_not_compute(name: str, reason: str) -> None:
    assert reason in _refusal(name)


@pytest.mark.parametrize(
    "name",
    [
        BF16,
        FP8,
        f"{BF16}_alpha2_beta1_bias_relu",
        f"{BF16}_residual_bias_relu",
        f"{FP8}_scaletensor_bias",
        f"{FP8}_scalerow",
        "matmul_64x62x62_bf16t_bf16t_bf16n_relu",
        "matmul_48x64x128_e4m3t_e4m3n_f32n_vs1x128_alpha2",
        "matmul_64x64x64_f16t_f16n_f16t_accf16",
        "batch_matmul_3x64x64x64_e4m3t_e4m3n_bf16t_scaletensor",
        "matmul_63x64x64_s8t_s8n_s32t_beta1",
    ],
)
def test_what_it_computes(name: str) -> None:
    assert _refusal(name) == ""
