"""Capabilities of this machine, and reasons for missing ones: rows for ``gemmetry doctor``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

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
from gemmetry.hardware.profilers import (
    PERMISSION_HINT,
    can_use_kfd,
    find_profiler,
    find_tool,
    is_restricted,
    running_profilers,
    too_old,
    tool_path,
)


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


def doctor_rows(
    which: Callable[[str], str | None] = find_tool, root: Path = Path("/")
) -> list[DoctorRow]:
    """CPU, memory, GPUs of both vendors with their drivers, tools, and hardware counters.

    Args:
        which: finds a program's path; replaced in tests.
        root: where the files of the system and of installations are; replaced in tests.
    """
    nvidia, amd = nvidia_gpus(), amd_gpus()
    return [
        _cpu_row(cpu_facts()),
        _memory_row(total_memory_bytes()),
        *_gpu_rows("NVIDIA", nvidia),
        *_gpu_rows("AMD", amd),
        *(_tool_row(tool, which, root) for tool in _TOOLS),
        *_counter_rows(nvidia, amd, which, root),
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


def _tool_row(tool: _Tool, which: Callable[[str], str | None], root: Path) -> DoctorRow:
    path = next((found for name in tool.names if (found := tool_path(name, which, root))), None)
    if path is None:
        return DoctorRow(
            capability=tool.names[0],
            available=False,
            detail=f"not on PATH; {tool.purpose}",
            next_step=tool.install,
        )
    return DoctorRow(capability=tool.names[0], available=True, detail=f"{path}: {tool.purpose}")


def _counter_rows(
    nvidia: GpuList, amd: GpuList, which: Callable[[str], str | None], root: Path
) -> list[DoctorRow]:
    """Whether hardware counters can be read here: a row for each vendor that has a GPU, or one."""
    rows = []
    if nvidia.gpus:
        rows.append(_nvidia_counters(nvidia.gpus[0].architecture, which, root))
    if amd.gpus:
        rows.append(_amd_counters(which, root))
    if rows:
        return rows
    can_read = find_spec("ncu_report") is not None or tool_path("ncu", which, root) is not None
    return [
        _counters(
            False,
            "there is no GPU here; reports of other machines can be read"
            + ("" if can_read else ", but .ncu-rep files only as CSV"),
            "collect where there is one: gemmetry counters collect"
            + ("" if can_read else "; for .ncu-rep files: pip install 'gemmetry[counters]'"),
        )
    ]


def _nvidia_counters(
    architecture: str, which: Callable[[str], str | None], root: Path
) -> DoctorRow:
    profiler = find_profiler("ncu", which, root)
    if profiler is None:
        return _counters(False, "ncu is not installed", "install NVIDIA Nsight Compute")
    name = f"Nsight Compute {profiler.version}".strip()
    if needed := too_old(profiler.version, architecture):
        return _counters(
            False, f"{name} is too old for {architecture}", f"install version {needed} or newer"
        )
    restricted = is_restricted(root)
    if restricted:
        return _counters(
            False, f"{name}; the driver restricts counters to administrators", PERMISSION_HINT
        )
    if running := running_profilers(root):
        return _counters(
            True, f"{name}; {' and '.join(running)} may hold the counters",
            "if they are in use: dcgmi profiling --pause, or stop the other profiler",
        )  # fmt: skip
    unknown = "; whether this user may read them is not known" if restricted is None else ""
    return _counters(True, f"{name}{unknown}")


def _amd_counters(which: Callable[[str], str | None], root: Path) -> DoctorRow:
    profiler = find_profiler("rocprofv3", which, root)
    if profiler is None:
        return _counters(False, "rocprofv3 is not installed", "install ROCm's rocprofiler-sdk")
    if can_use_kfd(root) is False:
        return _counters(
            False, "this user may not open /dev/kfd", "add the user to the groups render and video"
        )
    return _counters(True, f"rocprofv3 {profiler.version}".strip())


def _counters(available: bool, detail: str, next_step: str = "") -> DoctorRow:
    return DoctorRow(
        capability="hardware counters", available=available, detail=detail, next_step=next_step
    )
