"""Nsight Compute and rocprofv3 on this machine: where they are, and whether they may count.

Capabilities of this machine, and reasons for missing ones: rows for ``gemmetry doctor``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gemmetry.domain.units import format_bytes
from gemmetry.hardware.detect import CpuFacts, GpuList, amd_gpus, cpu_facts, nvidia_gpus
from gemmetry.hardware.devices import find_device, highest_clock
from gemmetry.hardware.host import read_text, total_memory_bytes
from gemmetry.hardware.roofline import core_peak

Which = Callable[[str], str | None]

_PLACES = {
    "ncu": ("usr/local/cuda/bin/ncu", "usr/local/cuda-*/bin/ncu",
            "opt/nvidia/nsight-compute/*/ncu"),
    "rocprofv3": ("opt/rocm/bin/rocprofv3", "opt/rocm-*/bin/rocprofv3"),
}  # fmt: skip
"""Installers' paths, below the root."""

_VERSION = re.compile(r"\b(\d+\.\d+(?:\.\d+)*)\b")
_VERSION_SECONDS = 60
"""The first start of ncu after boot reads much from disk."""

_SINCE = {"9": (2022, 3), "10": (2025, 1), "12": (2025, 1)}
"""Major compute capability -> the version of Nsight Compute that supports it first (release notes
of CUDA 11.8 and CUDA 12.8)."""

PERMISSION_HINT = (
    "Let the administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0, or start "
    "the container with --cap-add=SYS_ADMIN, or run as root "
    "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)."
)

OTHER_PROFILERS = ("nv-hostengine", "dcgm-exporter", "ncu", "nsys")
"""Programs that hold the counters of NVIDIA GPUs while they count; names as in /proc/*/comm."""

_ADMINISTRATION = (21, 38)
"""Bits of CAP_SYS_ADMIN and CAP_PERFMON (linux/capability.h)."""


@dataclass(frozen=True, slots=True)
class Profiler:
    """A profiler that was found."""

    name: str
    path: str
    version: str
    """Version; "" if the tool states none."""


def find_tool(name: str) -> str | None:
    """Path of a program on PATH or next to the running interpreter. A virtual environment that
    is not activated has its tools there."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def tool_path(name: str, which: Which = find_tool, root: Path = Path("/")) -> str | None:
    """Path of a program: on PATH, or where its installer puts it (:data:`_PLACES`), the newest."""
    if found := which(name):
        return found
    for pattern in _PLACES.get(name, ()):
        if installed := sorted(root.glob(pattern), key=_numbers):
            return str(installed[-1])
    return None


def find_profiler(name: str, which: Which = find_tool, root: Path = Path("/")) -> Profiler | None:
    """``ncu`` or ``rocprofv3`` with its version; None if it is not installed."""
    path = tool_path(name, which, root)
    return None if path is None else Profiler(name, path, _version(path))


def too_old(ncu_version: str, architecture: str) -> str:
    """The first version of Nsight Compute that supports `architecture` (``sm_90``), if
    `ncu_version` is older; "" otherwise."""
    found = re.fullmatch(r"sm_(\d+)\d[af]?", architecture)
    needed = _SINCE.get(found[1]) if found else None
    parts = _numbers(Path(ncu_version))[:2]
    return f"{needed[0]}.{needed[1]}" if needed and parts and tuple(parts) < needed else ""


def is_restricted(root: Path = Path("/")) -> bool | None:
    """Whether this process may not read the counters of NVIDIA GPUs; None if that is unknown."""
    try:
        parameters = (root / "proc/driver/nvidia/params").read_text()
        status = (root / "proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", parameters, re.MULTILINE)
    if found is None:
        return None
    effective = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", status, re.MULTILINE)
    mask = int(effective[1], 16) if effective else 0
    return found[1] != "0" and not any(mask >> bit & 1 for bit in _ADMINISTRATION)


def running_profilers(root: Path = Path("/")) -> list[str]:
    """Profilers of :data:`OTHER_PROFILERS` that run on this machine."""
    names = {read_text(path) for path in root.glob("proc/[0-9]*/comm")}
    return sorted(names & set(OTHER_PROFILERS))


def can_use_kfd(root: Path = Path("/")) -> bool | None:
    """Whether this process may open AMD's device; None if there is none."""
    device = root / "dev/kfd"
    if not device.exists():
        return None
    try:
        device.open("rb+", buffering=0).close()
    except PermissionError:
        return False
    except OSError:
        return None
    return True


def _version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace",
            timeout=_VERSION_SECONDS, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # Copyright lines have years, but no dots between numbers.
    found = _VERSION.search(done.stdout) or _VERSION.search(done.stderr)
    return found[1] if found else ""


def _numbers(path: Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", str(path))]


@dataclass(frozen=True, slots=True)
class DoctorRow:
    """One capability of this machine."""

    capability: str
    available: bool
    detail: str
    """Result, or why the tool is missing."""
    next_step: str = ""
    """Next step; "" where nothing needs to be done."""


_TOOLS = (
    ("nvcc", "compiles CUDA C++ kernels", "install NVIDIA's CUDA Toolkit"),
    ("ncu", "hardware counters on NVIDIA GPUs", "install NVIDIA Nsight Compute"),
    ("compute-sanitizer", "finds illegal accesses of GPU kernels",
     "install NVIDIA's CUDA Toolkit"),
    ("rocprofv3", "hardware counters on AMD GPUs", "install ROCm's rocprofiler-sdk"),
    ("iree-compile", "the command line that reproduces an IREE dispatch",
     "pip install 'gemmetry[iree]'"),
    ("chromium chromium-browser google-chrome", "tests of the HTML report",
     "apt-get install chromium chromium-driver (only the tests need it)"),
)  # fmt: skip
"""Names of a program, its purpose, and how to install it."""


def doctor_rows(which: Which = find_tool, root: Path = Path("/")) -> list[DoctorRow]:
    """CPU, memory, GPUs of both vendors with their drivers, tools, and hardware counters.

    Args:
        which: finds a program's path; replaced in tests.
        root: where the files of the system and of installations are; replaced in tests.
    """
    nvidia, amd = nvidia_gpus(), amd_gpus()
    memory_bytes = total_memory_bytes()
    size = format_bytes(memory_bytes) if memory_bytes else "size unknown on this system"
    rows = [_cpu_row(cpu_facts()), DoctorRow("memory", True, size),
            *_gpu_rows("NVIDIA", nvidia), *_gpu_rows("AMD", amd)]  # fmt: skip
    for names, purpose, install in _TOOLS:
        found = [path for name in names.split() if (path := tool_path(name, which, root))]
        what = f"{found[0]}: {purpose}" if found else f"not on PATH; {purpose}"
        rows.append(DoctorRow(names.split()[0], bool(found), what, "" if found else install))
    # Whether hardware counters can be read here: a row for each vendor that has a GPU, or one.
    counters = []
    if nvidia.gpus:
        counters.append(_nvidia_counters(nvidia.gpus[0].architecture, which, root))
    if amd.gpus:
        counters.append(_amd_counters(which, root))
    if not counters:
        what = "there is no GPU here; reports of other machines can be read"
        step = "collect where there is one: gemmetry counters collect"
        if find_spec("ncu_report") is None and tool_path("ncu", which, root) is None:
            what += ", but .ncu-rep files only as CSV"
            step += "; for .ncu-rep files: pip install 'gemmetry[counters]'"
        counters.append((False, what, step))
    return [*rows, *(DoctorRow("hardware counters", *one) for one in counters)]


def _cpu_row(facts: CpuFacts) -> DoctorRow:
    peak, clock = core_peak(facts), highest_clock(facts)
    cores = f"{facts.name}, {facts.usable_cores} usable processors"
    if peak is None or clock is None:
        what = f"{cores}; peak unknown, so no share of the roofline"
        return DoctorRow("CPU", True, what, "add its family to gemmetry/hardware/roofline.py")
    rates = ", ".join(f"{name} {peak[name][0]}" for name in ("f32", "bf16", "s8") if name in peak)
    text = f"{clock[0] / 1e9:.2f} GHz ({clock[1]})"
    return DoctorRow("CPU", True, f"{cores}, {text}; per cycle and core: {rates}")


def _gpu_rows(vendor: str, found: GpuList) -> list[DoctorRow]:
    if not found.gpus:
        return [DoctorRow(f"{vendor} GPU", False, found.reason, found.next_step)]
    rows = []
    for gpu in found.gpus:
        memory = "" if gpu.memory_bytes is None else f", {format_bytes(gpu.memory_bytes)}"
        known = find_device(gpu.name) is not None
        unknown = "" if known else "; not in the table of devices, so no share of the roofline"
        what = f"{gpu.name}, {gpu.architecture}{memory}, driver {gpu.driver}{unknown}"
        step = "" if known else "add it to gemmetry/hardware/devices.csv"
        rows.append(DoctorRow(f"{vendor} GPU {gpu.index}", True, what, step))
    return rows


_Counters = tuple[bool, str, str]
"""Whether hardware counters can be read, what was found, and what to do."""


def _nvidia_counters(architecture: str, which: Which, root: Path) -> _Counters:
    profiler = find_profiler("ncu", which, root)
    if profiler is None:
        return False, "ncu is not installed", "install NVIDIA Nsight Compute"
    name = f"Nsight Compute {profiler.version}".strip()
    if needed := too_old(profiler.version, architecture):
        step = f"install version {needed} or newer"
        return False, f"{name} is too old for {architecture}", step
    restricted = is_restricted(root)
    if restricted:
        what = f"{name}; the driver restricts counters to administrators"
        return False, what, PERMISSION_HINT
    if running := running_profilers(root):
        step = "if they are in use: dcgmi profiling --pause, or stop the other profiler"
        return True, f"{name}; {' and '.join(running)} may hold the counters", step
    unknown = "; whether this user may read them is not known" if restricted is None else ""
    return True, f"{name}{unknown}", ""


def _amd_counters(which: Which, root: Path) -> _Counters:
    profiler = find_profiler("rocprofv3", which, root)
    if profiler is None:
        return False, "rocprofv3 is not installed", "install ROCm's rocprofiler-sdk"
    if can_use_kfd(root) is False:
        step = "add the user to the groups render and video"
        return False, "this user may not open /dev/kfd", step
    return True, f"rocprofv3 {profiler.version}".strip(), ""
