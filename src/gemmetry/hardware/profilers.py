"""Nsight Compute and rocprofv3 on this machine: where they are, and whether they may count."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

Which = Callable[[str], str | None]

_PLACES = {
    "ncu": ("usr/local/cuda/bin/ncu", "usr/local/cuda-*/bin/ncu",
            "opt/nvidia/nsight-compute/*/ncu"),
    "rocprofv3": ("opt/rocm/bin/rocprofv3", "opt/rocm-*/bin/rocprofv3"),
}  # fmt: skip
"""Where their installers put them, below the root."""

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
    """"" if it does not state one."""


def find_tool(name: str) -> str | None:
    """Path of a program on PATH, or next to the running interpreter, where a virtual environment
    that is not activated has its tools."""
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
    """Those of :data:`OTHER_PROFILERS` that run on this machine."""
    return sorted(set(_running(root)) & set(OTHER_PROFILERS))


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


def _running(root: Path) -> Iterator[str]:
    for path in root.glob("proc/[0-9]*/comm"):
        try:
            yield path.read_text().strip()
        except OSError:  # It has just ended.
            continue


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
