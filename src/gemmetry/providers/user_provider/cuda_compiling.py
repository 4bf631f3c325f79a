"""Compiles a user's CUDA C++ kernel, on machines without a GPU too, or takes its machine code as it
is, and loads it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmetry.domain.contracts import Executable, Workspace
from gemmetry.domain.dispatch import Dispatch, Parameter
from gemmetry.domain.errors import CompileError
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.cuda_compiler import Cubin, compile_file
from gemmetry.hardware.cuda_plans import (
    CubinContents,
    LaunchPlan,
    NoDisassemblerError,
    instructions_of,
    performance_notes,
)
from gemmetry.providers.base import (
    compute_capability,
    matrix_instruction,
    output_folder,
    write_atomically,
)
from gemmetry.providers.cuda_provider.launching.executable import CompiledPlan, usage_of
from gemmetry.providers.user_provider.cuda_launch import plan_of
from gemmetry.providers.user_provider.cuda_manifest import MACHINE_CODE, CudaManifest, entries_of

_FIRST_WITH_VARIANT = 90
"""From sm_90 on, instructions such as wgmma exist only in the variant with an ``a``, whose code
runs on this architecture alone (CUDA C++ Programming Guide, architecture-specific features)."""

_MATRIX_INSTRUCTIONS = {
    "wgmma": ("HGMMA", "QGMMA", "IGMMA"),
    "tcgen05": ("UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA"),
    "mma.sync": ("HMMA", "QMMA", "IMMA", "OMMA", "DMMA"),
}
"""Reported name -> beginnings of names in machine code (CUDA Binary Utilities, instruction sets of
Hopper and Blackwell)."""


def compile_kernel(
    kernel: CudaManifest,
    dispatch: Dispatch,
    values: Mapping[str, Parameter],
    generated: Path,
    *,
    force: bool = False,
) -> tuple[LaunchPlan, CompiledPlan]:
    """The launch, its machine code for the dispatch's architecture, and the facts from building it.

    What is compiled is kept below `generated`, and found again for the same source, headers and
    macros.

    Raises:
        CompileError: NVRTC is missing or rejected the source, or the source has no such kernel.
        StorageError: the compiler's output cannot be written.
    """
    plan = plan_of(kernel, dispatch.operation, values)
    if kernel.cubin is not None:
        return plan, _taken(kernel, kernel.cubin, plan, dispatch, generated)
    architecture = code_architecture(dispatch.target.architecture)
    (launch,) = plan.launches
    before = time.perf_counter_ns()
    cubin = compile_file(
        kernel.path.parent,
        kernel.path.stem,
        (),
        architecture,
        options=launch.compilation.options,
        kept_in=generated / "user" / "cache",
        fresh=force,
    )
    elapsed_ns = time.perf_counter_ns() - before
    code = {launch.compilation: cubin}
    usage = next(iter(usage_of(plan, code)), None)
    if usage is None:
        name = kernel.entry
        known = ", ".join(entries_of(kernel.path)) or "none"
        raise CompileError(
            f'{kernel.path.name} has no extern "C" __global__ function {name}; it has {known}',
            hint=f'Write extern "C" __global__ void {name}(...), without which C++ changes its '
            "name.",
        )
    facts = BuildFacts(
        registers=usage.registers,
        spill_bytes=usage.spill_bytes,
        shared_memory_bytes=usage.shared_bytes,
        matrix_instruction=matrix_instruction(cubin.ptx),
        compiled_for=architecture,
        compile_ns=elapsed_ns,
        declared=kernel.declared,
        notes=(f"{kernel} compiled by NVRTC", *performance_notes(cubin.log)),
        **_written(dispatch, architecture, cubin, generated),
    )
    return plan, CompiledPlan(code, facts)


def _taken(
    kernel: CudaManifest,
    contents: CubinContents,
    plan: LaunchPlan,
    dispatch: Dispatch,
    generated: Path,
) -> CompiledPlan:
    """Machine code that was compiled elsewhere, and what it states about itself.

    Raises:
        CompileError: the file cannot be read any more.
    """
    (launch,) = plan.launches
    try:
        data = kernel.path.read_bytes()
    except OSError as error:
        raise CompileError(f"cannot read {kernel.path}: {error.strerror}") from None
    stated = contents.kernels[kernel.entry]
    path = output_folder(generated, dispatch) / f"{dispatch.configuration.name}{MACHINE_CODE}"
    facts = BuildFacts(
        registers=stated.registers,
        spill_bytes=stated.stack_bytes,
        shared_memory_bytes=stated.shared_bytes + launch.grid.dynamic_bytes,
        matrix_instruction=_disassembled_instruction(data),
        compiled_for=contents.architecture,
        declared=kernel.declared,
        notes=(f"{kernel} is machine code, as it was given",),
        binary_path=str(write_atomically(path, data).relative_to(generated.parent)),
    )
    return CompiledPlan({launch.compilation: Cubin(data, "")}, facts)


def _disassembled_instruction(data: bytes) -> str | None:
    """The matrix instruction of machine code, ``none`` without one; None where no tool shows it."""
    try:
        names = instructions_of(data)
    except NoDisassemblerError:
        return None
    found = (
        reported
        for reported, prefixes in _MATRIX_INSTRUCTIONS.items()
        if any(name.startswith(prefixes) for name in names)
    )
    return next(found, "none")


def build_kernel(
    kernel: CudaManifest, dispatch: Dispatch, values: Mapping[str, Parameter], workspace: Workspace
) -> Executable:
    """Compile `kernel` or take its machine code, and load it onto the dispatch's device.

    Raises:
        CompileError: it cannot be compiled. LaunchError: the driver refused it.
    """
    from gemmetry.hardware.torch_device import open_device
    from gemmetry.providers.cuda_provider.launching.executable import load

    plan, compiled = compile_kernel(kernel, dispatch, values, workspace.generated)
    return load(dispatch, plan, compiled, open_device(dispatch.target))


def code_architecture(architecture: str) -> str:
    """The architecture to compile for: ``sm_90a`` for ``sm_90``."""
    is_plain = architecture[-1:].isdigit()
    has_variant = compute_capability(architecture) >= _FIRST_WITH_VARIANT
    return f"{architecture}a" if is_plain and has_variant else architecture


def _written(
    dispatch: Dispatch, architecture: str, cubin: Cubin, generated: Path
) -> dict[str, Any]:
    """Write what the compiler made; the fact of each file's path -> the path."""
    stem = f"{dispatch.configuration.name}.{architecture}"
    folder = output_folder(generated, dispatch)
    files = {
        "assembly_path": (f"{stem}.ptx", cubin.ptx.encode()),
        "binary_path": (f"{stem}.cubin", cubin.code),
        "tool_output_path": (f"{stem}.log", f"{cubin.log}\n".encode()),
    }
    return {
        fact: str(write_atomically(folder / name, data).relative_to(generated.parent))
        for fact, (name, data) in files.items()
    }
