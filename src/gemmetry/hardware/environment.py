"""Captures the environment that two results must share to be comparable."""

from __future__ import annotations

import importlib
import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from gemmetry.domain.record import Environment
from gemmetry.hardware.detect import amd_gpus, cpu_facts, nvidia_gpus
from gemmetry.hardware.host import total_memory_bytes, usable_cores

_VARIABLES = re.compile(
    r"(OMP|MKL|OPENBLAS|BLIS|NUMEXPR|VECLIB|KMP|GOMP)_.*"  # threads and kernels of CPU libraries
    r"|(CUDA|NCCL|CUBLAS|CUBLASLT|NVTE|CUDNN)_.*|NVIDIA_(TF32_OVERRIDE|VISIBLE_DEVICES)"
    r"|(HIP|ROCR|HSA|AMD|ROCBLAS|HIPBLASLT|TENSILE|RCCL|GPU_MAX_HW_QUEUES).*"
    r"|(TORCH|PYTORCH|TRITON|(GEMMETRY_)?IREE|TORCHINDUCTOR)_.*"
    r"|ATEN_CPU_CAPABILITY|NPY_(DISABLE|ENABLE)_CPU_FEATURES|DNNL_.*|ONEDNN_.*|LD_PRELOAD|MALLOC_.*|PYTHONMALLOC"
)
"""Variables that choose threads, devices, kernels or allocators of the libraries providers use."""

_SECRETS = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|API_?KEY", re.IGNORECASE)
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
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def own_version() -> str:
    """The version of gemmetry."""
    # Not a plain import: the annotations of the root package name the api, which is a higher layer.
    # Not the installed metadata: a checkout on PYTHONPATH has none.
    return str(importlib.import_module("gemmetry").__version__)


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(environ.items())
        if _VARIABLES.fullmatch(name) and not _SECRETS.search(name)
    }
