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
        name: masked(value)
        for name, value in sorted(environ.items())
        if _VARIABLES.fullmatch(name)
        and _MATTERS.fullmatch(name)
        and not _SECRET_NAME.fullmatch(name)
    }


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
