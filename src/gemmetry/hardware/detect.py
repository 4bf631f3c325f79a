"""What this machine has: the CPU from the kernel's files, GPUs from NVML and amdsmi.

Nothing here raises when something is missing: it is reported as missing, with the reason.
"""

from __future__ import annotations

import importlib
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from gemmetry.hardware.host import (
    ROOT,
    cpu_folder,
    last_level_caches,
    physical_cores,
    read_text,
    usable_cores,
    usable_cpus,
)

_TURBO_DRIVERS = frozenset({"intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp"})
"""cpufreq drivers whose ``cpuinfo_max_freq`` is the processor's highest turbo (Linux
Documentation/admin-guide/pm/intel_pstate.rst and amd-pstate.rst); acpi-cpufreq may stop at the
base clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFacts:
    """The processor as Linux describes it; on other systems most fields keep their defaults."""

    name: str
    vendor: str = ""
    family: int = 0
    model: int = 0
    arm_part: int | None = None
    flags: frozenset[str] = frozenset()
    usable_cores: int = 1
    """Logical processors this process may use; with SMT two of them share one core's units."""
    physical_cores: int = 1
    """Physical cores of those processors: threads of one core share its vector units."""
    clock_hz: float | None = None
    clock_source: str = ""
    clock_is_highest: bool = False
    """True where the clock is this processor's own highest, turbo included."""
    last_level_caches: tuple[int, ...] = ()
    """Bytes of each distinct last-level cache of the usable processors; () if unknown."""

    @property
    def total_cache_bytes(self) -> int:
        """Total last-level cache of all usable processors in bytes; 0 if unknown."""
        return sum(self.last_level_caches)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU as its driver describes it."""

    kind: str
    """cuda or hip."""
    index: int
    name: str
    uuid: str = ""
    architecture: str = ""
    memory_bytes: int | None = None
    power_limit_w: float | None = None
    """The limit that is set, not a reading."""
    driver: str = ""


@dataclass(frozen=True, slots=True)
class GpuList:
    """GPUs of one vendor, or why none can be listed."""

    gpus: tuple[GpuFacts, ...]
    reason: str = ""
    """Why the list is empty; "" where it is not."""
    next_step: str = ""


def cpu_facts(root: Path = ROOT) -> CpuFacts:
    """Model, family and clock of the processors that this process may use, the flags common to all
    of them, and their cores and caches.

    Args:
        root: folder that contains /proc and /sys; replaced in tests.
    """
    usable = _usable_processors(root)
    fields = usable[0]
    clock_hz, clock_source, is_highest = _clock(fields, root)
    parts = {processor.get("CPU part", "") for processor in usable}
    part = parts.pop() if len(parts) == 1 else ""  # cores of several kinds have no common peak
    flags = [(p.get("flags") or p.get("Features") or "").split() for p in usable]
    return CpuFacts(
        name=fields.get("model name") or platform.processor() or platform.machine(),
        vendor=fields.get("vendor_id", ""),
        family=_integer(fields.get("cpu family")),
        model=_integer(fields.get("model")),
        arm_part=int(part, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", part) else None,
        flags=frozenset.intersection(*map(frozenset, flags)),
        usable_cores=usable_cores(root),
        physical_cores=physical_cores(root),
        clock_hz=clock_hz,
        clock_source=clock_source,
        clock_is_highest=is_highest,
        last_level_caches=last_level_caches(root),
    )


def processor_identity(root: Path = ROOT) -> str:
    """Model and features of this processor; machine code compiled for them may not run on
    another."""
    lines = read_text(root / "proc/cpuinfo").partition("\n\n")[0].splitlines()
    wanted = ("model name", "flags", "Features", "CPU part")
    named = "\n".join(line for line in lines if line.startswith(wanted))
    return named or f"{platform.machine()} {platform.processor()}"


def nvidia_gpus(nvml: ModuleType | Any | None = None) -> GpuList:
    """NVIDIA GPUs through NVML; `nvml` replaces the module pynvml in tests."""
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return GpuList(
                (), "the NVML bindings are not installed", "pip install 'gemmetry[telemetry]'"
            )
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return GpuList(
            (),
            f"NVML does not start: {error}",
            "install NVIDIA's driver if this host has an NVIDIA GPU",
        )
    try:
        driver = str(nvml.nvmlSystemGetDriverVersion())
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        gpus = tuple(_nvidia_gpu(nvml, handle, i, driver) for i, handle in enumerate(handles))
    except nvml.NVMLError as error:
        return GpuList((), f"NVML cannot list the GPUs: {error}", "check nvidia-smi and dmesg")
    finally:
        nvml.nvmlShutdown()
    if not gpus:
        return GpuList((), "the driver shows no NVIDIA GPU", "check that the GPU is passed through")
    return GpuList(gpus)


def amd_gpus(amdsmi: ModuleType | Any | None = None) -> GpuList:
    """AMD GPUs through amdsmi; `amdsmi` replaces the module in tests."""
    if amdsmi is None:
        try:
            amdsmi = importlib.import_module("amdsmi")
        except ImportError:
            return GpuList((), "amdsmi is not installed", "install the amdsmi package of ROCm")
        except (KeyError, OSError) as error:  # its import searches for ROCm's library
            return GpuList((), f"amdsmi does not load: {error}", "install ROCm's driver stack")
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiException as error:
        return GpuList((), f"amdsmi does not start: {error}", "check that the amdgpu driver runs")
    try:
        handles = amdsmi.amdsmi_get_processor_handles()
        gpus = tuple(_amd_gpu(amdsmi, handle, i) for i, handle in enumerate(handles))
    except amdsmi.AmdSmiException as error:
        return GpuList((), f"amdsmi cannot list the GPUs: {error}", "check rocminfo and dmesg")
    finally:
        amdsmi.amdsmi_shut_down()
    if not gpus:
        return GpuList((), "the driver shows no AMD GPU", "check that the GPU is passed through")
    return GpuList(gpus)


def _nvidia_gpu(nvml: Any, handle: Any, index: int, driver: str) -> GpuFacts:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    try:
        memory: int | None = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:
        memory = None  # GPUs that share the host's memory do not report it
    try:
        limit: float | None = nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3
    except nvml.NVMLError:
        limit = None  # virtual GPUs have none
    return GpuFacts(
        kind="cuda",
        index=index,
        name=str(nvml.nvmlDeviceGetName(handle)),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        architecture=f"sm_{major}{minor}",
        memory_bytes=memory,
        power_limit_w=limit,
        driver=driver,
    )


def _amd_gpu(amdsmi: Any, handle: Any, index: int) -> GpuFacts:
    asic = amdsmi.amdsmi_get_gpu_asic_info(handle)
    driver = amdsmi.amdsmi_get_gpu_driver_info(handle)
    version = str(asic.get("target_graphics_version", "")).removeprefix("gfx")
    return GpuFacts(
        kind="hip",
        index=index,
        name=str(asic.get("market_name", "")),
        uuid=str(amdsmi.amdsmi_get_gpu_device_uuid(handle)),
        architecture=f"gfx{version}" if version else "",
        driver=str(driver.get("driver_version", "")),
    )


def _usable_processors(root: Path) -> list[dict[str, str]]:
    """The entry of /proc/cpuinfo of each usable processor; where entries are not numbered, the
    first one only, or none."""
    blocks = []
    for block in read_text(root / "proc/cpuinfo").split("\n\n"):
        pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
        blocks.append({key.strip(): value.strip() for key, value in pairs})
    numbers = {str(cpu) for cpu in usable_cpus()}
    return [block for block in blocks if block.get("processor") in numbers] or blocks[:1]


def _clock(fields: dict[str, str], root: Path) -> tuple[float | None, str, bool]:
    """The highest clock that the system shows for a usable processor, its description, and whether
    it is certain to include turbo."""
    folders = [cpu_folder(cpu, root) / "cpufreq" for cpu in usable_cpus()]
    shown = (read_text(folder / "cpuinfo_max_freq") for folder in folders)
    kilohertz = [int(text) for text in shown if text.isdigit()]
    if kilohertz:
        driver = read_text(folders[0] / "scaling_driver")
        return max(kilohertz) * 1e3, "highest of cpufreq", driver in _TURBO_DRIVERS
    try:
        megahertz = float(fields["cpu MHz"])
    except (KeyError, ValueError):
        return None, "", False
    return megahertz * 1e6, "TSC; boost may exceed", False


def _integer(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0
