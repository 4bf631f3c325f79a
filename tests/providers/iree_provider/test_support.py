from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.names import parse_operation
from gemmetry.providers.iree_provider.support import unsupported_reason

CPU = Target(TargetKind.CPU)
SM_75 = Target(TargetKind.CUDA, "sm_75", None)
SM_80 = Target(TargetKind.CUDA, "sm_80", None)
SM_90 = Target(TargetKind.CUDA, "sm_90")
GFX942 = Target(TargetKind.HIP, "gfx942", None)
GFX950 = Target(TargetKind.HIP, "gfx950", None)
VULKAN = Target(TargetKind.VULKAN, "ada", None)


@pytest.mark.parametrize(
    ("operands", "target", "part"),
    [
        ("tf32t_tf32t_f32t", CPU, "no tf32 type"),
        ("e4m3t_e4m3t_bf16t_scaletensor", CPU, "scaled matmuls"),
        ("f32t_f32t_f32t_accf16", CPU, "narrower than the operands"),
        ("f64t_f64t_f64t_gelu", CPU, "math.erf in f64"),
        ("f16t_f16t_f16t", SM_75, "sm_80 or newer"),
        ("e4m3t_e4m3t_bf16t", SM_80, "sm_89 or newer"),
        ("e4m3t_e4m3t_e4m3t", SM_90, "round a result to fp8"),
        ("e4m3t_e5m2t_f32t", SM_90, "operands of one type"),
        ("e4m3fnuzt_e4m3fnuzt_f32t", SM_90, "AMD GPUs only"),
        ("bf16t_bf16t_bf16t_accbf16", SM_90, "accumulated in bf16"),
        ("e4m3t_e4m3t_f32t", GFX942, "FNUZ fp8 formats"),
        ("f16t_f16t_f16t_accf16", GFX942, "accumulated in f16"),
        ("f32t_f32t_f32t", Target(TargetKind.HIP, product="New"), "architecture of New"),
        ("bf16t_bf16t_f32t", VULKAN, "SPIR-V"),
        ("f32t_f32t_f32t", Target(TargetKind.NULL), "no backend for null"),
    ],
)
def test_refusals_give_their_reason(operands, target, part):
    reason = unsupported_reason(parse_operation(f"matmul_64x64x64_{operands}"), target)
    assert reason is not None
    assert part in reason


@pytest.mark.parametrize(
    ("operands", "targets"),
    [
        ("f32t_f32t_f32t", [CPU, SM_80, SM_90, GFX942, GFX950, VULKAN]),
        ("f64t_f64t_f64t", [CPU, SM_80, SM_90, GFX942]),
        ("f16t_f16n_f16t", [CPU, SM_80, SM_90, GFX942, VULKAN]),
        ("bf16t_bf16t_bf16t", [CPU, SM_80, SM_90, GFX942]),
        ("s8t_s8t_s32t", [CPU, SM_80, SM_90, GFX942, VULKAN]),
        ("e4m3t_e4m3t_bf16t", [CPU, SM_90, GFX950]),
        ("e4m3fnuzt_e4m3fnuzt_f32t", [CPU, GFX942]),
        ("f16t_f16t_f16t_accf16", [CPU, SM_80]),
    ],
)
def test_what_was_seen_to_compile_is_supported(operands, targets):
    operation = parse_operation(f"matmul_64x64x64_{operands}")
    assert [unsupported_reason(operation, target) for target in targets] == [None] * len(targets)
