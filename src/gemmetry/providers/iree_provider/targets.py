"""What IREE 3.13 can compile for and run on, and the compiler flags of each target."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from gemmetry.domain.dtypes import E4M3, E5M2
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.hardware.devices import find_device

COMPILE_ONLY = (
    Target(TargetKind.CUDA, "sm_80", None),
    Target(TargetKind.CUDA, "sm_86", None),
    Target(TargetKind.CUDA, "sm_89", None),
    Target(TargetKind.HIP, "gfx942", None),
    Target(TargetKind.HIP, "gfx950", None),
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
"""By default the compiler silently turns f64 into f32 and changes the function's signature."""

TARGET_CPU_VARIABLE = "GEMMETRY_IREE_TARGET_CPU"
"""Environment variable for the option ``target_cpu`` where no options can be passed: ``haswell``,
``generic`` or another of LLVM's names for a processor of the host's kind."""

_NATIVE_CUDA = (80, 86, 87, 89)
_DRIVERS = {TargetKind.CUDA: "cuda", TargetKind.HIP: "hip", TargetKind.VULKAN: "vulkan"}

_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76
_L2_CACHE_SIZE = 38
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
    number = cuda_number(target.architecture)
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


def cuda_number(architecture: str) -> int:
    """``sm_90a`` -> 90; 0 for other names."""
    match = re.fullmatch(r"sm_(\d+)[a-z]?", architecture)
    return int(match[1]) if match else 0


def uses_fp8(operation: Operation) -> bool:
    """True if A, B or C is an fp8 format."""
    s = operation.signature
    return any(dtype.is_fp8 for dtype in (s.lhs, s.rhs, s.result))


def uses_ocp_fp8(operation: Operation) -> bool:
    """True if A or B is an OCP fp8 format, which gfx942 lacks."""
    s = operation.signature
    return any(dtype in (E4M3, E5M2) for dtype in (s.lhs, s.rhs, s.result))


def target_flags(target: Target, operation: Operation, options: Mapping[str, Any]) -> list[str]:
    """``iree-compile`` flags that specify the target, followed by ``options["compile_flags"]``.

    Code for a CPU is generated for ``options["target_cpu"]``, else for the processor named by the
    environment variable ``GEMMETRY_IREE_TARGET_CPU``, else for this processor.

    On a GPU the functions wait for and signal fences, so that launches are queued as in a real
    program; on the CPU a call returns when it is complete.
    """
    architecture = compile_architecture(target, operation)
    if target.kind is TargetKind.CPU:
        flags = [
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            f"--iree-llvmcpu-target-cpu={_target_cpu(options) or architecture}",
        ]
    else:
        name = {TargetKind.CUDA: "cuda", TargetKind.HIP: "rocm", TargetKind.VULKAN: "vulkan"}
        flags = [f"--iree-hal-target-device={_DRIVERS[target.kind]}"]
        if architecture:
            flags.append(f"--iree-{name[target.kind]}-target={architecture}")
        flags.append("--iree-execution-model=async-external")
    return [*flags, *COMMON_FLAGS, *options.get("compile_flags", ())]


def _target_cpu(options: Mapping[str, Any]) -> str:
    return str(options.get("target_cpu") or os.environ.get(TARGET_CPU_VARIABLE, ""))


def device_uri(target: Target) -> str:
    """The device's URI for IREE's tools and runtime, e.g. ``cuda://0``."""
    if target.kind is TargetKind.CPU:
        return "local-task"
    return f"{_DRIVERS[target.kind]}://{target.index or 0}"


def attached_targets() -> Sequence[Target]:
    """GPUs that IREE's runtime finds on this machine; empty where a driver library is missing."""
    import iree.runtime

    found: list[Target] = []
    available = iree.runtime.query_available_drivers()
    for kind in (TargetKind.CUDA, TargetKind.HIP):
        if _DRIVERS[kind] not in available:
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
    is_amd = known is not None and known.architecture.startswith("gfx")
    return known.architecture if known is not None and is_amd else ""


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
    major = _cuda_attribute(index, _COMPUTE_CAPABILITY_MAJOR)
    minor = _cuda_attribute(index, _COMPUTE_CAPABILITY_MINOR)
    return "" if major is None or minor is None else f"sm_{major}{minor}"


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
