"""What this machine has: CPU and memory from the kernel's files, GPUs from NVML and amdsmi.

Nothing here raises when something is missing: that is an answer, with its reason.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

_CPUINFO = Path("/proc/cpuinfo")
_SYSFS_CPUS = Path("/sys/devices/system/cpu")
_MEMINFO = Path("/proc/meminfo")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")

_TURBO_DRIVERS = frozenset({"intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp"})
"""cpufreq drivers whose ``cpuinfo_max_freq`` is the processor's highest turbo (Linux
Documentation/admin-guide/pm/intel_pstate.rst and amd-pstate.rst); acpi-cpufreq may stop at the
base clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFacts:
    """The processor as Linux describes it; elsewhere most fields keep their defaults."""

    name: str
    vendor: str = ""
    family: int = 0
    model: int = 0
    arm_part: int | None = None
    flags: frozenset[str] = frozenset()
    usable_cores: int = 1
    """Logical processors this process may use; with SMT two of them share one core's units."""
    threads_per_core: int = 1
    clock_hz: float | None = None
    clock_source: str = ""
    clock_is_highest: bool = False
    """True where the clock is this very processor's highest, turbo included."""
    last_level_cache_bytes: int | None = None
    """Of one group of cores that share it."""
    last_level_caches: int = 1
    """Groups that the usable processors belong to."""

    @property
    def total_cache_bytes(self) -> int:
        """Last-level caches of all usable processors together; 0 if unknown."""
        return (self.last_level_cache_bytes or 0) * self.last_level_caches

    @property
    def physical_cores(self) -> int:
        """Cores behind the usable processors: threads of one core share its vector units."""
        return max(1, -(-self.usable_cores // self.threads_per_core))


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
    driver: str = ""


@dataclass(frozen=True, slots=True)
class GpuList:
    """GPUs of one vendor, or why none can be listed."""

    gpus: tuple[GpuFacts, ...]
    reason: str = ""
    """Why the list is empty; "" where it is not."""
    next_step: str = ""


def usable_cpus() -> list[int]:
    """Logical processors that this process may run on, by number."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """How many logical processors this process may run on."""
    return len(usable_cpus())


def cpu_facts(cpuinfo: Path = _CPUINFO, sysfs: Path = _SYSFS_CPUS) -> CpuFacts:
    """Model, family, flags, clock and caches of the first processor."""
    fields = _first_processor(cpuinfo)
    clock_hz, clock_source, is_highest = _clock(fields, sysfs)
    cache_bytes, caches = _last_level_cache(sysfs)
    part = fields.get("CPU part", "")
    return CpuFacts(
        name=fields.get("model name") or platform.processor() or platform.machine(),
        vendor=fields.get("vendor_id", ""),
        family=_integer(fields.get("cpu family")),
        model=_integer(fields.get("model")),
        arm_part=int(part, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", part) else None,
        flags=frozenset((fields.get("flags") or fields.get("Features") or "").split()),
        usable_cores=usable_cores(),
        threads_per_core=_threads_per_core(sysfs),
        clock_hz=clock_hz,
        clock_source=clock_source,
        clock_is_highest=is_highest,
        last_level_cache_bytes=cache_bytes,
        last_level_caches=caches,
    )


def total_memory_bytes(
    meminfo: Path = _MEMINFO, own_cgroups: Path = _OWN_CGROUPS, cgroups: Path = _CGROUPS
) -> int:
    """Memory of the machine, or the limit of this process's control group where that is lower;
    0 if unknown."""
    text = _read(meminfo)
    match = re.search(r"^MemTotal:\s+(\d+) kB", text, re.MULTILINE)
    total = int(match[1]) * 1024 if match else 0
    limits = [total] if total else []
    for line in _read(own_cgroups).splitlines():
        _, _, rest = line.partition(":")  # hierarchy:controllers:path
        controllers, _, path = rest.partition(":")
        if not controllers:
            limit = cgroups / path.lstrip("/") / "memory.max"
        elif "memory" in controllers.split(","):
            limit = cgroups / "memory" / path.lstrip("/") / "memory.limit_in_bytes"
        else:
            continue
        value = _read(limit).strip()
        if value.isdigit():
            limits.append(int(value))
    return min(limits, default=0)


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
            (), f"NVML does not start: {error}", "install NVIDIA's driver if this host has its GPU"
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
        except (KeyError, OSError) as error:  # its import looks for ROCm's library and raises these
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
        memory = None  # GPUs that share the host's memory do not tell
    return GpuFacts(
        kind="cuda",
        index=index,
        name=str(nvml.nvmlDeviceGetName(handle)),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        architecture=f"sm_{major}{minor}",
        memory_bytes=memory,
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


def _first_processor(cpuinfo: Path) -> dict[str, str]:
    block = _read(cpuinfo).split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _clock(fields: dict[str, str], sysfs: Path) -> tuple[float | None, str, bool]:
    """The highest clock that the system tells, what it is, and whether turbo is surely in it."""
    told = (_read(path).strip() for path in sysfs.glob("cpu[0-9]*/cpufreq/cpuinfo_max_freq"))
    kilohertz = [int(text) for text in told if text.isdigit()]
    if kilohertz:
        driver = _read(sysfs / "cpu0" / "cpufreq" / "scaling_driver").strip()
        return max(kilohertz) * 1e3, "highest of cpufreq", driver in _TURBO_DRIVERS
    try:
        megahertz = float(fields["cpu MHz"])
    except (KeyError, ValueError):
        return None, "", False
    return megahertz * 1e6, "TSC; boost may exceed", False


def _threads_per_core(sysfs: Path) -> int:
    siblings = _read(sysfs / "cpu0" / "topology" / "thread_siblings_list").strip()
    return max(1, len(_cpu_list(siblings)))


def _last_level_cache(sysfs: Path) -> tuple[int | None, int]:
    """Size of the last cache, and how many of them the usable processors have."""
    found: dict[int, tuple[int, str]] = {}
    for folder in sorted((sysfs / "cpu0" / "cache").glob("index*")):
        level, size = _read(folder / "level").strip(), _read(folder / "size").strip()
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if level.isdigit() and match and _read(folder / "type").strip() != "Instruction":
            bytes_ = int(match[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]]
            found[int(level)] = (bytes_, folder.name)
    if not found:
        return None, 1
    size_bytes, index = found[max(found)]
    shared = {
        _read(sysfs / f"cpu{cpu}" / "cache" / index / "shared_cpu_list").strip()
        for cpu in usable_cpus()
    }
    return size_bytes, max(1, len(shared - {""}))


def _cpu_list(text: str) -> list[int]:
    """``0-2,8`` -> [0, 1, 2, 8]."""
    cpus: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def _integer(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
