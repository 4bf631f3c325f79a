"""Targets of IREE 3.13, and the compiler flags of each.

Operations that IREE 3.13 supports on each target, with a reason for each unsupported one.

The limits were found by compiling; odd ones are gaps in that compiler.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.operation import (
    BF16,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    F16,
    F64,
    TF32,
    EpilogueStep,
    Operation,
    Scaling,
    Signature,
)
from gemmetry.hardware.devices import find_device
from gemmetry.providers.base import compute_capability
from gemmetry.providers.iree_provider.linalg import MLIR_TYPES

COMPILE_ONLY = (
    *(Target(TargetKind.CUDA, name, None) for name in ("sm_80", "sm_86", "sm_89")),
    *(Target(TargetKind.HIP, name, None) for name in ("gfx942", "gfx950")),
    Target(TargetKind.VULKAN, "ada", None),
)
"""Architectures that code can be generated for without such a device."""

SM90_NOTE = (
    "IREE 3.13 has no sm_90 or sm_100 target: code for such GPUs is compiled as sm_80 (fp8: "
    "sm_89) PTX that the driver translates. It uses mma.sync, not wgmma or tcgen05, so expect a "
    "fraction of cuBLAS."
)
"""Note for ``gemmetry doctor`` and the facts of every affected dispatch."""

COMMON_FLAGS = ("--iree-input-demote-f64-to-f32=false",)
"""Flags against the compiler's default, which silently turns f64 into f32 and changes the
signature."""

TARGET_CPU_VARIABLE = "GEMMETRY_IREE_TARGET_CPU"
"""Environment variable for the option ``target_cpu`` where no options can be passed: ``haswell``,
``generic`` or another of LLVM's names for a processor of the host's kind."""

_NATIVE_CUDA = (80, 86, 87, 89)
_DRIVERS = {TargetKind.CUDA: "cuda", TargetKind.HIP: "hip", TargetKind.VULKAN: "vulkan"}

_COMPUTE_CAPABILITY, _L2_CACHE_SIZE = (75, 76), 38
"""CUdevice_attribute values of the CUDA driver API."""


def compile_architecture(target: Target, operation: Operation) -> str:
    """The architecture that code is generated for; ``host`` on a CPU, see :func:`target_flags`.

    A CUDA architecture without a target of its own uses the newest older one that supports the
    operation: PTX is forward compatible, and the driver translates it for the device.
    """
    if target.kind is TargetKind.CPU:
        return "host"
    if target.kind is not TargetKind.CUDA:
        return target.architecture
    number = compute_capability(target.architecture)
    if number in _NATIVE_CUDA:
        return f"sm_{number}"
    return "sm_89" if uses_fp8(operation) and number >= 89 else "sm_80"


def compiled_as(target: Target, operation: Operation) -> Target | None:
    """The compile-only CUDA target that code for `target` is actually compiled for; None where that
    is `target` itself."""
    if target.kind is not TargetKind.CUDA:
        return None
    older = Target(TargetKind.CUDA, compile_architecture(target, operation), None)
    return None if older.name == target.name else older


def uses_fp8(operation: Operation) -> bool:
    """True if A, B or C is an fp8 format."""
    s = operation.signature
    return any(dtype.is_fp8 for dtype in (s.lhs, s.rhs, s.result))


def target_flags(target: Target, operation: Operation, options: Mapping[str, Any]) -> list[str]:
    """``iree-compile`` flags that specify the target, followed by ``options["compile_flags"]``.

    Code for a CPU is generated for ``options["target_cpu"]``, else for the processor named by the
    environment variable ``GEMMETRY_IREE_TARGET_CPU``, else for this processor.

    On a GPU the functions wait for and signal fences, so that launches are queued as in a real
    program; on the CPU a call returns when it is complete.
    """
    architecture = compile_architecture(target, operation)
    if target.kind is TargetKind.CPU:
        processor = options.get("target_cpu") or os.environ.get(TARGET_CPU_VARIABLE, "")
        flags = [
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            f"--iree-llvmcpu-target-cpu={processor or architecture}",
        ]
    else:
        driver = _DRIVERS[target.kind]
        flags = [f"--iree-hal-target-device={driver}"]
        if architecture:
            name = "rocm" if target.kind is TargetKind.HIP else driver
            flags.append(f"--iree-{name}-target={architecture}")
        flags.append("--iree-execution-model=async-external")
    return [*flags, *COMMON_FLAGS, *options.get("compile_flags", ())]


def device_uri(target: Target) -> str:
    """The device's URI for IREE's tools and runtime, e.g. ``cuda://0``."""
    if target.kind is TargetKind.CPU:
        return "local-task"
    return f"{_DRIVERS[target.kind]}://{target.index or 0}"


def attached_targets() -> Sequence[Target]:
    """GPUs that IREE's runtime finds on this machine; empty where a driver library is missing."""
    import iree.runtime

    found: list[Target] = []
    for kind in (TargetKind.CUDA, TargetKind.HIP):
        if _DRIVERS[kind] not in iree.runtime.query_available_drivers():
            continue
        try:
            devices = iree.runtime.get_driver(_DRIVERS[kind]).query_available_devices()
        except (RuntimeError, ValueError):
            # The driver library (libcuda.so, libamdhip64.so) or the device is missing.
            continue
        for index, device in enumerate(devices):
            product = str(device.get("name", ""))
            is_cuda = kind is TargetKind.CUDA
            architecture = _cuda_architecture(index) if is_cuda else hip_architecture(product)
            found.append(Target(kind, architecture, index, product))
    return found


def hip_architecture(product: str) -> str:
    """``AMD Instinct MI300X`` -> ``gfx942``; "" for a product that is not in the table of devices.

    IREE's runtime reports only the product.
    """
    known = find_device(product)
    return known.architecture if known and known.architecture.startswith("gfx") else ""


def cuda_l2_bytes(index: int) -> int | None:
    """Size of a CUDA device's L2 cache in bytes; None if the driver does not report it."""
    return _cuda_attribute(index, _L2_CACHE_SIZE)


def cuda_free_bytes(index: int) -> int | None:
    """Free memory of a CUDA device in bytes, from the driver; None if it does not report it."""
    driver = _libcuda()
    if driver is None:
        return None
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if driver.cuDeviceGet(ctypes.byref(device), index):
        return None
    if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        return None
    try:
        if driver.cuCtxPushCurrent_v2(context):
            return None
        status = driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)
    return None if status else int(free.value)


def _cuda_architecture(index: int) -> str:
    digits = [_cuda_attribute(index, attribute) for attribute in _COMPUTE_CAPABILITY]
    return "" if None in digits else f"sm_{digits[0]}{digits[1]}"


def _cuda_attribute(index: int, attribute: int) -> int | None:
    driver = _libcuda()
    device, value = ctypes.c_int(), ctypes.c_int()
    if driver is None or driver.cuDeviceGet(ctypes.byref(device), index):
        return None
    if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
        return None
    return value.value


@cache
def _libcuda() -> ctypes.CDLL | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def unsupported_reason(operation: Operation, target: Target) -> str | None:
    """None if `operation` compiles for `target` with at least the default configuration."""
    checks = {
        TargetKind.CPU: _on_cpu,
        TargetKind.CUDA: _on_cuda,
        TargetKind.HIP: _on_hip,
        TargetKind.VULKAN: _on_vulkan,
    }
    if reason := _language(operation):
        return reason
    if target.kind not in checks:
        return f"IREE has no backend for {target.kind}"
    return checks[target.kind](operation, target)


def _language(operation: Operation) -> str | None:
    """Limits that hold on every target."""
    s = operation.signature
    if s.scaling is not Scaling.NONE:
        return "scaled matmuls (scale_a, scale_b) are not lowered here"
    if TF32 in (s.lhs, s.rhs):
        return "MLIR has no tf32 type; IREE multiplies f32 in full precision"
    untyped = [str(d) for d in (s.lhs, s.rhs) if d.name not in MLIR_TYPES]
    if untyped:
        return f"{untyped[0]} is not lowered here"
    if not s.lhs.is_integer and s.accumulator.storage_bits < max(
        s.lhs.storage_bits, s.rhs.storage_bits
    ):
        return f"an {s.accumulator} accumulator is narrower than the operands"
    return None


def _on_cpu(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if EpilogueStep.GELU in s.epilogue and s.accumulator is F64:
        return "IREE's CPU backend cannot lower math.erf in f64"
    return None


def _on_cuda(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    number = compute_capability(target.architecture)
    if target.architecture and number < 80:
        return f"IREE's tensor-core code needs sm_80 or newer, not {target.architecture}"
    if uses_fp8(operation) and number < 89:
        return f"fp8 needs sm_89 or newer, not {target.architecture or 'an unknown GPU'}"
    if {E4M3FNUZ, E5M2FNUZ} & {s.lhs, s.rhs, s.result}:
        return "the FNUZ formats exist on AMD GPUs only"
    if s.result.is_fp8:
        return "IREE's CUDA backend cannot round a result to fp8"
    return _gpu_product(s)


def _on_hip(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if not target.architecture:
        return f"the architecture of {target.product or 'this AMD GPU'} is not known here"
    if target.architecture == "gfx942" and {E4M3, E5M2} & {s.lhs, s.rhs, s.result}:
        return "gfx942 has the FNUZ fp8 formats (e4m3fnuz, e5m2fnuz), not the OCP ones"
    if s.accumulator is F16:
        return "IREE's ROCm backend cannot distribute a product accumulated in f16"
    return _gpu_product(s)


def _on_vulkan(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if uses_fp8(operation) or BF16 in (s.lhs, s.rhs, s.result, s.accumulator):
        return "IREE's SPIR-V backend lowers f64, f32, f16 and s8 products only"
    return _gpu_product(s)


def _gpu_product(s: Signature) -> str | None:
    if s.lhs is not s.rhs:
        return f"IREE's GPU backends multiply operands of one type, not {s.lhs} by {s.rhs}"
    if s.accumulator is BF16:
        return "IREE's GPU backends cannot distribute a product accumulated in bf16"
    return None
