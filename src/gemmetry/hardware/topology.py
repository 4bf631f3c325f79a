"""What the vendors' tools show of GPUs, their clocks and the links between them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmetry.hardware.host import read_text

_SECONDS = 20
"""nvidia-smi takes some seconds where the driver is not kept loaded."""

TOPOLOGY: tuple[tuple[str, ...], ...] = (
    ("nvidia-smi", "topo", "-m"),
    ("rocm-smi", "--showtopo"),
)
CLOCKS: tuple[tuple[str, ...], ...] = (
    (
        "nvidia-smi",
        "--query-gpu=index,name,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu",
        "--format=csv",
    ),
    ("rocm-smi", "--showclocks", "--showpower", "--showtemp"),
)

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

_DEVICE_FILES = ("dev/nvidia0", "dev/nvidiactl", "dev/kfd", "dev/dxg")
"""Of NVIDIA's and AMD's drivers, and of Windows' GPUs under WSL."""


def printed_by_tools(commands: Sequence[Sequence[str]]) -> dict[str, str]:
    """Command line -> what it printed, for those of `commands` that are installed and succeed."""
    found: dict[str, str] = {}
    for command in commands:
        if shutil.which(command[0]) is None:
            continue
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
            continue
        if result.returncode == 0:
            found[" ".join(command)] = result.stdout.strip()
    return found


def has_gpu_driver(root: Path = Path("/")) -> bool:
    """Whether a driver of GPUs that torch can use is loaded, in this container too."""
    return any((root / name).exists() for name in _DEVICE_FILES)


def has_amd_driver(root: Path = Path("/")) -> bool:
    """Whether AMD's driver is loaded, and NVIDIA's is not."""
    return (root / "dev/kfd").exists() and not (root / "dev/nvidiactl").exists()


def gpu_count(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> int:
    """How many GPUs a process that starts now can use, as far as drivers and variables show it."""
    for name in _VISIBLE:
        if name in environ:
            return len([part for part in environ[name].split(",") if part.strip()])
    nvidia = [path for path in (root / "dev").glob("nvidia*") if path.name[6:].isdecimal()]
    if nvidia:
        return len(nvidia)
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    simds = (re.search(r"^simd_count (\d+)$", read_text(path), re.MULTILINE) for path in nodes)
    return sum(found is not None and int(found[1]) > 0 for found in simds)
