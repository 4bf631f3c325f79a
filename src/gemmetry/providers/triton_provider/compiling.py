"""Compiles the kernel for an architecture, stores the compiler's output, and reads the machine
code.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import CompileError
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.base import matrix_instruction, output_folder, write_atomically
from gemmetry.providers.triton_provider.block_scaled import Architecture
from gemmetry.providers.triton_provider.plan import KernelPlan
from gemmetry.providers.triton_provider.triton_kernels import KERNELS

_KEPT = ("ttir", "ttgir", "ptx", "cubin", "amdgcn", "hsaco")
_CUOBJDUMP_SECONDS = 30


class Built(NamedTuple):
    """Triton's compiled kernel and the facts from building it."""

    kernel: Any
    facts: BuildFacts


def compile_kernel(
    dispatch: Dispatch,
    plan: KernelPlan,
    architecture: Architecture,
    generated: Path,
    *,
    force: bool,
) -> Built:
    """Compile `plan` for `architecture`, writing the intermediate forms below `generated`.

    Triton keeps its own cache next to them (unless TRITON_CACHE_DIR is set), so that kernels
    compiled ahead load immediately in another process.

    Raises:
        CompileError: Triton or ptxas rejected it.
        StorageError: the files cannot be written.
    """
    function = KERNELS[plan.kernel]
    names = function.arg_names
    source = ASTSource(
        function, plan.signature(names), dict(plan.constants), plan.attributes(names)
    )
    options = {"num_warps": plan.warps, "num_stages": plan.stages, "enable_fp_fusion": True}
    os.environ.setdefault("TRITON_CACHE_DIR", str(generated / "triton" / "cache"))
    target = _gpu_target(architecture)
    before = time.perf_counter_ns()
    with _always_compiling(force), as_compile_error(dispatch):
        kernel = triton.compile(source, target=target, options=options)
    elapsed_ns = time.perf_counter_ns() - before
    shared = int(kernel.metadata.shared)
    if shared > architecture.shared_memory_bytes:
        raise CompileError(
            f"{dispatch.name} needs {shared} bytes of shared memory, {architecture.name} has "
            f"{architecture.shared_memory_bytes} per block",
            hint="Use fewer stages or smaller tiles.",
        )
    stem = f"{dispatch.configuration.name}.{architecture.name}"
    files = _write_forms(kernel, output_folder(generated, dispatch), stem)
    return Built(kernel, _read_facts(kernel, architecture, files, elapsed_ns, generated.parent))


@contextlib.contextmanager
def _always_compiling(force: bool) -> Iterator[None]:
    if not force:
        yield
        return
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.always_compile = True
        yield


@contextlib.contextmanager
def as_compile_error(dispatch: Dispatch) -> Iterator[None]:
    """Turn Triton's exceptions for kernels that it cannot compile or load into CompileError.

    Triton has no common base class: its front end raises CompilationError, its pass manager
    RuntimeError and ValueError, ptxas PTXASError, the loader OutOfResources.
    """
    try:
        yield
    except (triton.TritonError, RuntimeError, ValueError, AssertionError, KeyError) as error:
        raise CompileError(
            f"triton cannot compile {dispatch.name}: {first_useful_line(error)}",
            hint="Try another configuration; the whole output is in the worker's log.",
        ) from error


def first_useful_line(error: BaseException) -> str:
    """The line of a compiler's output that states the cause of an error, not its location.

    Triton's front end chains one error per function that it was inlining; the first one is the
    cause.
    """
    while error.__cause__ is not None and str(error.__cause__).strip():
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    informative = [
        line for line in lines if re.search(r"error|exceed|out of resource|assert", line, re.I)
    ]
    if informative:
        return informative[0][:300]
    # Triton's front end shows the code with a caret under it, and the reason in the last line.
    return lines[-1][:300] if lines else type(error).__name__


def _gpu_target(architecture: Architecture) -> GPUTarget:
    if architecture.is_amd:
        return GPUTarget("hip", architecture.name, architecture.warp_size)
    return GPUTarget("cuda", architecture.number, architecture.warp_size)


def _write_forms(kernel: Any, folder: Path, stem: str) -> dict[str, Path]:
    files = {}
    for form in _KEPT:
        content = kernel.asm.get(form)
        if content is not None:
            data = content if isinstance(content, bytes) else content.encode()
            files[form] = write_atomically(folder / f"{stem}.{form}", data)
    return files


def _read_facts(
    kernel: Any, architecture: Architecture, files: dict[str, Path], elapsed_ns: int, root: Path
) -> BuildFacts:
    assembly = kernel.asm.get("ptx") or kernel.asm.get("amdgcn") or ""
    if architecture.is_amd:
        registers, spilled = amd_resources(assembly)
    else:
        cubin = files.get("cubin")
        printed = None if cubin is None else _resource_usage(cubin)
        registers, spilled = parse_resource_usage(printed or "")
        if cubin is not None and printed is not None:
            log = f"$ cuobjdump -res-usage {cubin.name}\n{printed}"
            files["log"] = write_atomically(cubin.with_suffix(".log"), log.encode())

    def relative(form: str) -> str | None:
        return str(files[form].relative_to(root)) if form in files else None

    return BuildFacts(
        registers=registers,
        spill_bytes=spilled,
        shared_memory_bytes=int(kernel.metadata.shared),
        matrix_instruction=matrix_instruction(assembly),
        compiled_for=architecture.name,
        compile_ns=elapsed_ns,
        source_path=relative("ttir"),
        binary_path=relative("cubin") or relative("hsaco"),
        assembly_path=relative("ptx") or relative("amdgcn"),
        tool_output_path=relative("log"),
    )


def amd_resources(assembly: str) -> tuple[int | None, int | None]:
    """Vector registers (with accumulation registers) and spilled bytes per lane, from the kernel
    metadata at the end of AMD assembly (LLVM AMDGPU guide, code object V5 metadata)."""

    def entry(name: str) -> int | None:
        match = re.search(rf"\.{name}:\s+(\d+)", assembly)
        return int(match[1]) if match else None

    vector, spilled = entry("vgpr_count"), entry("vgpr_spill_count")
    if vector is None or spilled is None:
        return None, None
    # .vgpr_count is the unified total on CDNA 2 and later, accumulation registers included.
    return vector, 4 * spilled


def _resource_usage(cubin: Path) -> str | None:
    """Facts about a kernel from the cuobjdump in Triton's package; None where it cannot run."""
    try:
        return subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(cubin)],
            capture_output=True, text=True, check=True, timeout=_CUOBJDUMP_SECONDS,
        ).stdout  # fmt: skip
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None


def parse_resource_usage(output: str) -> tuple[int | None, int | None]:
    """``REG:210 STACK:0 SHARED:0 LOCAL:0`` -> (210, 0): registers, stack plus local bytes. The
    kernel has no arrays of its own, so its stack holds spilled registers only."""
    match = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", output)
    if match is None:
        return None, None
    return int(match[1]), int(match[2]) + int(match[3])
