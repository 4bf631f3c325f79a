"""Compiles a user's CUDA C++ kernel, on machines without a GPU too."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from gemmetry.devices.cuda_compiler import Cubin, compile_file
from gemmetry.domain.dispatch import Dispatch, Parameter
from gemmetry.domain.errors import CompileError
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.user_provider.cuda.launch import launch_sizes, macros_for
from gemmetry.providers.user_provider.cuda.manifest import CudaManifest, entries_of

_FIRST_WITH_VARIANT = 90
"""From sm_90 on, instructions such as wgmma exist only in the variant with an ``a``, whose code
runs on this architecture alone (CUDA C++ Programming Guide, architecture-specific features)."""


def compile_kernel(
    kernel: CudaManifest,
    dispatch: Dispatch,
    values: Mapping[str, Parameter],
    generated: Path,
    *,
    force: bool = False,
) -> tuple[Cubin, BuildFacts]:
    """The machine code for the dispatch's architecture, and what the compiler says about it.

    Machine code is kept below `generated`, and found again for the same source, headers and macros.

    Raises:
        CompileError: NVRTC is missing or rejected the source, or the source has no such kernel.
    """
    architecture = code_architecture(dispatch.target.architecture)
    macros = macros_for(dispatch.operation, values)
    before = time.perf_counter_ns()
    cubin = compile_file(
        kernel.path.parent,
        kernel.path.stem,
        (),
        architecture,
        options=tuple(f"-D{name}={value}" for name, value in macros.items()),
        kept_in=None if force else generated / "user" / "cuda",
    )
    elapsed_ns = time.perf_counter_ns() - before
    name = kernel.function_name
    if f".text.{name}\0".encode() not in cubin.code:
        known = ", ".join(entries_of(kernel.path)) or "none"
        raise CompileError(
            f'{kernel.path.name} has no extern "C" __global__ function {name}; it has {known}',
            hint=f'Write extern "C" __global__ void {name}(...), without which C++ changes its '
            "name.",
        )
    sizes = launch_sizes(kernel, dispatch.operation, values)
    return cubin, _facts(kernel, cubin, architecture, sizes.shared_bytes, elapsed_ns)


def code_architecture(architecture: str) -> str:
    """The architecture to compile for: ``sm_90a`` for ``sm_90``."""
    number = int(re.sub(r"\D", "", architecture) or 0)
    plain = architecture.isidentifier() and architecture[-1].isdigit()
    return f"{architecture}a" if plain and number >= _FIRST_WITH_VARIANT else architecture


def _facts(
    kernel: CudaManifest, cubin: Cubin, architecture: str, dynamic_bytes: int, elapsed_ns: int
) -> BuildFacts:
    own = cubin.log.partition(f"'{kernel.function_name}'")[2]
    return BuildFacts(
        registers=_number(r"Used (\d+) registers", own),
        spill_bytes=_number(r"(\d+) bytes spill stores", own),
        shared_memory_bytes=(_number(r"(\d+) bytes smem", own) or 0) + dynamic_bytes,
        compiled_for=architecture,
        compile_ns=elapsed_ns,
        declared=kernel.declared,
        notes=(f"{kernel} compiled by NVRTC",),
    )


def _number(pattern: str, text: str) -> int | None:
    """The first match in the part of ptxas' output about one kernel."""
    match = re.search(pattern, text.partition("Compiling entry function")[0])
    return int(match[1]) if match else None
