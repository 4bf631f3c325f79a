from __future__ import annotations

import iree.runtime
import pytest

from gemmetry.domain.dispatch import Target, TargetKind, parse_target
from gemmetry.domain.names import parse_operation
from gemmetry.providers.iree_provider import support
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


HALF = parse_operation("matmul_64x64x64_f16t_f16t_f16t")
FP8 = parse_operation("matmul_64x64x64_e4m3t_e4m3t_bf16t")


@pytest.mark.parametrize(
    ("target", "operation", "architecture"),
    [
        ("cpu", HALF, "host"),
        ("cuda-sm_80", HALF, "sm_80"),
        ("cuda-sm_86", HALF, "sm_86"),
        ("cuda-sm_89", FP8, "sm_89"),
        ("cuda-sm_90", HALF, "sm_80"),
        ("cuda-sm_90a", FP8, "sm_89"),
        ("cuda-sm_100", FP8, "sm_89"),
        ("cuda", HALF, "sm_80"),
        ("hip-gfx942", HALF, "gfx942"),
    ],
)
def test_newer_gpus_get_the_newest_code_that_iree_can_make(target, operation, architecture):
    assert support.compile_architecture(parse_target(target), operation) == architecture


def test_flags_name_the_target_keep_f64_and_end_with_the_users(monkeypatch):
    monkeypatch.delenv(support.TARGET_CPU_VARIABLE, raising=False)
    flags = support.target_flags(parse_target("cpu"), HALF, {"compile_flags": ["--mine"]})
    assert "--iree-hal-local-target-device-backends=llvm-cpu" in flags
    assert "--iree-llvmcpu-target-cpu=host" in flags
    assert "--iree-input-demote-f64-to-f32=false" in flags
    assert flags[-1] == "--mine"
    cuda = support.target_flags(parse_target("cuda-sm_90"), HALF, {})
    assert cuda[:2] == ["--iree-hal-target-device=cuda", "--iree-cuda-target=sm_80"]
    assert "--iree-execution-model=async-external" in cuda
    hip = support.target_flags(parse_target("hip-gfx950"), HALF, {})
    assert "--iree-rocm-target=gfx950" in hip


def test_code_for_a_cpu_is_for_the_one_that_is_named(monkeypatch):
    def named(options) -> list[str]:
        flags = support.target_flags(parse_target("cpu"), HALF, options)
        return [flag for flag in flags if flag.startswith("--iree-llvmcpu-target-cpu=")]

    monkeypatch.setenv(support.TARGET_CPU_VARIABLE, "haswell")
    assert named({}) == ["--iree-llvmcpu-target-cpu=haswell"]
    assert named({"target_cpu": "znver2"}) == ["--iree-llvmcpu-target-cpu=znver2"]
    monkeypatch.delenv(support.TARGET_CPU_VARIABLE)
    assert named({}) == ["--iree-llvmcpu-target-cpu=host"]


def test_devices_are_addressed_by_number():
    assert support.device_uri(Target(TargetKind.CPU)) == "local-task"
    assert support.device_uri(parse_target("cuda:1")) == "cuda://1"


def test_a_driver_that_cannot_be_opened_is_not_a_device(monkeypatch):
    def refuse(name: str) -> None:
        raise RuntimeError(f"UNAVAILABLE; {name} driver library not found")

    monkeypatch.setattr(iree.runtime, "get_driver", refuse)
    assert list(support.attached_targets()) == []


def test_devices_that_the_driver_lists_become_targets(monkeypatch):
    class Driver:
        def query_available_devices(self) -> list[dict[str, str]]:
            return [{"name": "One"}, {"name": "Two"}]

    monkeypatch.setattr(iree.runtime, "query_available_drivers", lambda: ["cuda", "local-task"])
    monkeypatch.setattr(iree.runtime, "get_driver", lambda name: Driver())
    monkeypatch.setattr(
        support, "_cuda_attribute", lambda index, attribute: 9 - (attribute - 75) * 9
    )
    found = support.attached_targets()
    assert [target.device for target in found] == ["cuda:0", "cuda:1"]
    assert [target.architecture for target in found] == ["sm_90", "sm_90"]
    assert found[1].product == "Two"


def test_without_libcuda_nothing_is_known(monkeypatch):
    monkeypatch.setattr(support, "_libcuda", lambda: None)
    assert support.cuda_l2_bytes(0) is None
    assert support.cuda_free_bytes(0) is None


@pytest.mark.parametrize(
    ("product", "architecture"),
    [("AMD Instinct MI300X OAM", "gfx942"), ("AMD Instinct MI355X", "gfx950"), ("Radeon", "")],
)
def test_amd_products_have_an_architecture(product, architecture):
    assert support.hip_architecture(product) == architecture
