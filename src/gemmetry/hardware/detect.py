"""Devices of this machine: the CPU from the kernel's files, GPUs from NVML and amdsmi.

Nothing here raises when something is missing: it is reported as missing, with the reason.

Captures the environment that two results must share to be comparable.

GPUs, their clocks and the links between them, from the vendors' tools.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from gemmetry.domain.record import Environment
from gemmetry.hardware.host import (
    ROOT,
    cpu_folder,
    last_level_caches,
    physical_cores,
    read_text,
    total_memory_bytes,
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
    """True where the clock is this processor's own highest, including turbo."""
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
    """Reason why the list is empty; "" where it is not."""
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
            step = "pip install 'gemmetry[telemetry]'"
            return GpuList((), "the NVML bindings are not installed", step)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        step = "install NVIDIA's driver if this host has an NVIDIA GPU"
        return GpuList((), f"NVML does not start: {error}", step)
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


def nvidia_free_bytes(uuid: str, nvml: ModuleType | Any | None = None) -> int:
    """Free memory in bytes of the NVIDIA GPU or MIG instance with this UUID; 0 if NVML does not
    report it, or the GPU is divided into instances. `nvml` replaces the module pynvml in tests."""
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return 0
    with suppress(nvml.NVMLError):  # GPUs that share the host's memory do not report it
        nvml.nvmlInit()
        try:
            handle, is_divided = nvml.nvmlDeviceGetHandleByUUID(uuid), False
            with suppress(nvml.NVMLError):  # other GPUs and the instances themselves have no mode
                is_divided = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
            return 0 if is_divided else int(nvml.nvmlDeviceGetMemoryInfo(handle).free)
        finally:
            nvml.nvmlShutdown()
    return 0


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
    memory, limit = None, None
    with suppress(nvml.NVMLError):  # GPUs that share the host's memory do not report it
        memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    with suppress(nvml.NVMLError):  # virtual GPUs have none
        limit = nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3
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
    with suppress(KeyError, ValueError):
        return float(fields["cpu MHz"]) * 1e6, "TSC; boost may exceed", False
    return None, "", False


def _integer(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0


_VARIABLES = re.compile(
    r"(OMP|MKL|OPENBLAS|BLIS|NUMEXPR|VECLIB|KMP|GOMP)_.*"  # threads and kernels of CPU libraries
    r"|(CUDA|NCCL|CUBLAS|CUBLASLT|NVTE|CUDNN)_.*|NVIDIA_(TF32_OVERRIDE|VISIBLE_DEVICES)"
    r"|(HIP|ROCR|HSA|AMD|ROCBLAS|HIPBLASLT|TENSILE|RCCL|GPU_MAX_HW_QUEUES).*"
    r"|(TORCH|PYTORCH|TRITON|(GEMMETRY_)?IREE|TORCHINDUCTOR)_.*"
    r"|ATEN_CPU_CAPABILITY|NPY_(DISABLE|ENABLE)_CPU_FEATURES|DNNL_.*|ONEDNN_.*|LD_PRELOAD|MALLOC_.*|PYTHONMALLOC"
)
"""Variables that choose threads, devices, kernels or allocators of the libraries providers use."""

_MATTERS = re.compile(
    r"(?:.*_)?(?:"
    r"ADJUST|AFFINITY|ALGO|ALGORITHM|ALLOC|ALLOCATOR|ARCH|ASYNC|ATTN|AUTOTUNE|BATCH|BIND|BLAS"
    r"|BLOCK|BLOCKING|BLOCKTIME|BUFFER|BUFFSIZE|CACHE|CBWR|CGA|CHANNELS|CHECKS|CLOCK|CLUSTER"
    r"|COMM|COMPILE|CONF|CONFIG|CONNECTIONS|COPY|CORETYPE|CPU|CROSS|CTAS|CUMEM|DEBUG|DEVICES?"
    r"|DIR|DISABLE|DMABUF|DYNAMIC|EAGER|ENABLE|ENGINE|ERROR|FEATURES|FLAGS|FLASH|FORCE|FP16"
    r"|FP32|FUSED|FUSION|GDR|GPUS?|GRAPH|HEAP|HEURISTIC|HOME|HOST|IB|IFNAME|INIT|INST"
    r"|INTERPRET|IR|ISA|JIT|KERNEL|LAUNCH|LAYER|LAZY|LEVEL|LIB|LIBPATH|LIBRARY|LIMIT|LOAD"
    r"|LOADING|LOGS?|MAX|MEM|MEMORY|MIN|MODE|MODULE|MPS|NCHANNELS|NET|NETWORK|NICS?|NTHREADS"
    r"|NUM|NUMA|NVLS|OFFLOAD|OPT|OVERRIDE|P2P|PATHS?|PLACES|PLUGIN|POLICY|PRECISION|PRELOAD"
    r"|PROC|PROFILER?|PROTO|PROTOCOL|PTXAS|QUEUES?|RDMA|REDUCED|ROCM|SCHEDULE|SCRATCH|SDMA"
    r"|SERIALIZE|SHM|SIZE|SLICE|SOCKET|SPLIT|STACKSIZE|STREAMS?|SYNC|TARGET|TF32|THREADS?|TILE"
    r"|TIMEOUT|TOPO|TOPOLOGY|TRACE|TRACING|TREE|TUNABLEOP|TUNER?|TUNING|UNIFIED|VERBOSE"
    r"|VERSION|VISIBLE|WAIT|WARP|WORKSPACE|XNACK|ZERO"
    r")(?:_.*)?"
)
"""Words of names that choose something of that kind; one of them is in each name that is stored."""

_SECRET_WORDS = (
    r"(?:auth|bearer|cert|cookie|credential|key|passphrase|passwd|password|private|pwd|secret"
    r"|session|signature|token)s?"
)
_SECRET_NAME = re.compile(
    rf"(?i)(?!.*(?:file|path|dir)\Z)(?:.*[_-])?(?:api|access)?{_SECRET_WORDS}(?:[_-].*)?"
)
_SECRETS = (
    # The user and password of a URL, and known forms of tokens.
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s@'\"]+@"), r"\1***@"),
    (re.compile(r"\b(?:gh[a-z]_|github_pat_|hf_|sk-|xox[a-z]-|glpat-|AKIA|ASIA|eyJ)[\w.-]{12,}"),
     "***"),
    (re.compile(r"-----BEGIN [\s\S]*"), "***"),
    # NAME=value and --name value, unless the value is a file.
    (re.compile(rf"(?i)((?<![\w-])(?:[\w-]*[_-])?(?:api|access)?{_SECRET_WORDS}=)[^\s'\"]+"),
     r"\1***"),
    (re.compile(rf"(?i)(--(?:[\w-]*-)?(?:api|access)?{_SECRET_WORDS} )[^\s-][^\s]*"), r"\1***"),
)  # fmt: skip
"""Expressions, and what replaces them."""

_GIT_SECONDS = 5
_Value = TypeVar("_Value")


def capture_environment(packages: Mapping[str, str]) -> Environment:
    """The machine, software and devices of this process.

    Whatever cannot be determined is left empty; nothing raises.

    Args:
        packages: library -> version, from the providers; gemmetry's own is added.
    """
    gpus = (*nvidia_gpus().gpus, *amd_gpus().gpus)
    drivers = sorted({gpu.driver for gpu in gpus if gpu.driver})
    return Environment(
        hostname=socket.gethostname(),
        operating_system=platform.platform(),
        python=platform.python_version(),
        cpu=cpu_facts().name,
        cpu_count=usable_cores(),
        memory_bytes=total_memory_bytes(),
        devices=tuple(gpu.name for gpu in gpus),
        device_ids=tuple(gpu.uuid for gpu in gpus if gpu.uuid),
        device_memory_bytes=_known([gpu.memory_bytes for gpu in gpus]),
        power_limits_w=_known([gpu.power_limit_w for gpu in gpus]),
        driver=", ".join(drivers),
        packages={
            "gemmetry": own_version(),
            **{name: str(text) for name, text in packages.items()},  # torch's has its own class
        },
        git_revision=git_revision(Path.cwd()),
        variables=_variables(os.environ),
    )


def _known(values: Sequence[_Value | None]) -> tuple[_Value | None, ...]:
    """The values, or none where no GPU reports one."""
    return tuple(values) if any(value is not None for value in values) else ()


def git_revision(folder: Path) -> str:
    """Commit of the repository that contains `folder`, with ``-dirty`` appended where files differ
    from it; "" if there is no repository or git is not installed."""
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=folder, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def own_version() -> str:
    """The version of gemmetry."""
    # Not a plain import: the root package names modules of higher levels.
    # Not the installed metadata: a checkout on PYTHONPATH has none.
    return str(importlib.import_module("gemmetry").__version__)


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: masked(value) for name, value in sorted(environ.items())
        if _VARIABLES.fullmatch(name) and _MATTERS.fullmatch(name)
        and not _SECRET_NAME.fullmatch(name)
    }  # fmt: skip


def masked(text: str) -> str:
    """`text`, such as a command line, without passwords and tokens."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def masked_words(words: Sequence[str]) -> list[str]:
    """The words of a command without passwords and tokens."""
    found = [masked(word) for word in words]
    for place, word in enumerate(words[:-1]):
        if word.startswith("--") and _SECRET_NAME.fullmatch(word.lstrip("-")):
            found[place + 1] = "***"
    return found


def masked_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables of the environment whose values are no secrets any more."""
    return {
        name: "***" if _SECRET_NAME.fullmatch(name) else masked(value)
        for name, value in variables.items()
    }


_SECONDS = 20
"""nvidia-smi takes some seconds where the driver is not kept loaded."""

TOPOLOGY: tuple[tuple[str, ...], ...] = (
    ("nvidia-smi", "topo", "-m"), ("rocm-smi", "--showtopo"),
)  # fmt: skip
CLOCKS: tuple[tuple[str, ...], ...] = (
    ("nvidia-smi", "--format=csv",
     "--query-gpu=index,name,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu"),
    ("rocm-smi", "--showclocks", "--showpower", "--showtemp"),
)  # fmt: skip

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

_DEVICE_FILES = ("dev/nvidia0", "dev/nvidiactl", "dev/kfd", "dev/dxg")
"""Device files of NVIDIA's and AMD's drivers, and of Windows' GPUs under WSL."""


def printed_by_tools(commands: Sequence[Sequence[str]]) -> dict[str, str]:
    """Command line -> what it printed, for those of `commands` that are installed and succeed."""
    found: dict[str, str] = {}
    for command in commands:
        if shutil.which(command[0]) is None:
            continue
        with suppress(OSError, subprocess.SubprocessError, UnicodeDecodeError):
            text = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True,
                                           timeout=_SECONDS)  # fmt: skip
            found[" ".join(command)] = text.strip()
    return found


def has_gpu_driver(root: Path = Path("/")) -> bool:
    """Whether a driver of GPUs that torch can use is loaded, in this container too."""
    return any((root / name).exists() for name in _DEVICE_FILES)


def has_amd_driver(root: Path = Path("/")) -> bool:
    """Whether AMD's driver is loaded, and NVIDIA's is not."""
    return (root / "dev/kfd").exists() and not (root / "dev/nvidiactl").exists()


def gpu_count(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> int:
    """Number of GPUs that a process that starts now can use, by drivers and variables."""
    for name in _VISIBLE:
        if name in environ:
            return len([part for part in environ[name].split(",") if part.strip()])
    nvidia = [path for path in (root / "dev").glob("nvidia*") if path.name[6:].isdecimal()]
    if nvidia:
        return len(nvidia)
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    simds = (re.search(r"^simd_count (\d+)$", read_text(path), re.MULTILINE) for path in nodes)
    return sum(found is not None and int(found[1]) > 0 for found in simds)
