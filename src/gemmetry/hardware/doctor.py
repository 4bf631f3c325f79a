"""Capabilities of this machine, and reasons for missing ones: rows for ``gemmetry doctor``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmetry.domain.units import format_bytes
from gemmetry.hardware.clocks import highest_clock
from gemmetry.hardware.cpu import core_peak
from gemmetry.hardware.detect import (
    CpuFacts,
    GpuList,
    amd_gpus,
    cpu_facts,
    nvidia_gpus,
)
from gemmetry.hardware.devices import find_device
from gemmetry.hardware.host import total_memory_bytes
from gemmetry.hardware.profilers import find_tool


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRow:
    """One capability of this machine."""

    capability: str
    available: bool
    detail: str
    """What was found, or why it is missing."""
    next_step: str = ""
    """What to do about it; "" where nothing needs to be done."""


@dataclass(frozen=True, slots=True)
class _Tool:
    names: tuple[str, ...]
    purpose: str
    install: str


_TOOLS: tuple[_Tool, ...] = (
    _Tool(("nvcc",), "compiles CUDA C++ kernels", "install NVIDIA's CUDA Toolkit"),
    _Tool(("ncu",), "hardware counters on NVIDIA GPUs", "install NVIDIA Nsight Compute"),
    _Tool(
        ("compute-sanitizer",),
        "finds illegal accesses of GPU kernels",
        "install NVIDIA's CUDA Toolkit",
    ),
    _Tool(("rocprofv3",), "hardware counters on AMD GPUs", "install ROCm's rocprofiler-sdk"),
    _Tool(
        ("iree-compile",),
        "the command line that reproduces an IREE dispatch",
        "pip install 'gemmetry[iree]'",
    ),
    _Tool(
        ("chromium", "chromium-browser", "google-chrome"),
        "tests of the HTML report",
        "apt-get install chromium chromium-driver (only the tests need it)",
    ),
)


def doctor_rows(which: Callable[[str], str | None] = find_tool) -> list[DoctorRow]:
    """CPU, memory, GPUs of both vendors with their drivers, and tools on PATH.

    Args:
        which: finds a program's path; replaced in tests.
    """
    return [
        _cpu_row(cpu_facts()),
        _memory_row(total_memory_bytes()),
        *_gpu_rows("NVIDIA", nvidia_gpus()),
        *_gpu_rows("AMD", amd_gpus()),
        *(_tool_row(tool, which) for tool in _TOOLS),
    ]


def _cpu_row(facts: CpuFacts) -> DoctorRow:
    peak, clock = core_peak(facts), highest_clock(facts)
    cores = f"{facts.name}, {facts.usable_cores} usable processors"
    if peak is None or clock is None:
        return DoctorRow(
            capability="CPU",
            available=True,
            detail=f"{cores}; peak unknown, so no share of the roofline",
            next_step="add its family to gemmetry/hardware/cpu.py",
        )
    rates = ", ".join(
        f"{name} {peak.per_cycle[name]}" for name in ("f32", "bf16", "s8") if name in peak.per_cycle
    )
    text = f"{clock[0] / 1e9:.2f} GHz ({clock[1]})"
    return DoctorRow(
        capability="CPU", available=True, detail=f"{cores}, {text}; per cycle and core: {rates}"
    )


def _memory_row(memory_bytes: int) -> DoctorRow:
    if memory_bytes == 0:
        return DoctorRow(capability="memory", available=True, detail="size unknown on this system")
    return DoctorRow(capability="memory", available=True, detail=format_bytes(memory_bytes))


def _gpu_rows(vendor: str, found: GpuList) -> list[DoctorRow]:
    if not found.gpus:
        return [
            DoctorRow(
                capability=f"{vendor} GPU",
                available=False,
                detail=found.reason,
                next_step=found.next_step,
            )
        ]
    rows = []
    for gpu in found.gpus:
        memory = "" if gpu.memory_bytes is None else f", {format_bytes(gpu.memory_bytes)}"
        known = find_device(gpu.name) is not None
        unknown = "" if known else "; not in the table of devices, so no share of the roofline"
        rows.append(
            DoctorRow(
                capability=f"{vendor} GPU {gpu.index}",
                available=True,
                detail=f"{gpu.name}, {gpu.architecture}{memory}, driver {gpu.driver}{unknown}",
                next_step="" if known else "add it to gemmetry/hardware/devices.py",
            )
        )
    return rows


def _tool_row(tool: _Tool, which: Callable[[str], str | None]) -> DoctorRow:
    path = next((found for name in tool.names if (found := which(name))), None)
    if path is None:
        return DoctorRow(
            capability=tool.names[0],
            available=False,
            detail=f"not on PATH; {tool.purpose}",
            next_step=tool.install,
        )
    return DoctorRow(capability=tool.names[0], available=True, detail=f"{path}: {tool.purpose}")
