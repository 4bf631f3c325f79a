"""A user's CUDA kernel: from an operation and a configuration to macros and a launch, compiling it,
on machines without a GPU too, or taking its machine code as it is, and loading it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Parameter, Target, TargetKind
from gemmetry.domain.errors import CompileError, UnsupportedError
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.cuda_plans import (
    Compilation,
    CubinContents,
    CubinKernel,
    Extent,
    Grid,
    KernelLaunch,
    LaunchPlan,
    NoDisassemblerError,
    instructions_of,
)
from gemmetry.providers.base import SHARED_BYTES, compute_capability, is_installed, written_files
from gemmetry.providers.user_provider.cuda_manifest import (
    MACHINE_CODE,
    SIZES,
    CudaManifest,
    Expression,
    argument_for,
    entries_of,
    times,
)

if TYPE_CHECKING:
    from gemmetry.providers.cuda_provider.executable import CompiledPlan

_LIMITS = {
    "blocks": (2**31 - 1, 65535, 65535),
    "threads": (1024, 1024, 64),
    "cluster": (16, 16, 16),
}
"""Along x, y and z: CUDA C++ Programming Guide, technical specifications per compute capability;
clusters of more than eight blocks are non-portable, of more than 16 impossible (sm_90)."""
_MOST_THREADS = 1024
"""Maximum number of threads of a block (the same table)."""


def names_of(operation: Operation, values: Mapping[str, Parameter]) -> dict[str, int]:
    """Names for expressions of a manifest: sizes, and macros that are integers."""
    numbers = (*operation.matmul_shape, operation.signature.split_k_slices)
    sizes = dict(zip(SIZES, numbers, strict=True))
    return sizes | {name: int(v) for name, v in values.items() if isinstance(v, int)}


def why_not(
    kernel: CudaManifest, operation: Operation, values: Mapping[str, Parameter], target: Target
) -> str | None:
    """Why `kernel` with these macros does not compute `operation` on `target`; None if it does."""
    if target.kind is not TargetKind.CUDA:
        if kernel.cubin is not None:
            return f"{kernel} is machine code for {kernel.cubin.architecture} of NVIDIA"
        return (
            f"{kernel} is CUDA C++, which runs on NVIDIA GPUs; `gemmetry compile --device "
            "cuda-sm_90` compiles it without one"
        )
    if kernel.cubin is not None and not kernel.cubin.runs_on(target.architecture):
        return (
            f"{kernel} is machine code for {kernel.cubin.architecture}, which "
            f"{target.architecture} does not run"
        )
    if not _has_bindings():
        return f"{kernel} needs cuda-bindings; pip install 'gemmetry[cuda]'"
    if not kernel.computes(operation.signature):
        return f"{kernel} does not list these formats and layouts under operations"
    names = names_of(operation, values)
    try:
        for condition in kernel.requires:
            if not condition.value(names):
                mentioned = (f"{name} = {names[name]}" for name in sorted(condition.names))
                lead = ", and " if condition.names else ""
                return f"{kernel} requires {condition.text}{lead}{', '.join(mentioned)}"
        (launch,) = plan_of(kernel, operation, values).launches
    except ValueError as error:
        return f"{kernel}: {error}"
    problem = _grid_problem(launch.grid, target.architecture, kernel.machine_code)
    return None if problem is None else f"{kernel}: {problem}"


@cache
def _has_bindings() -> bool:
    return is_installed("cuda.bindings")


def _grid_problem(grid: Grid, architecture: str, machine_code: CubinKernel | None) -> str | None:
    for what, limits in _LIMITS.items():
        extent = getattr(grid, what)
        if any(not 1 <= size <= limit for size, limit in zip(extent, limits, strict=True)):
            x, y, z = limits
            return f"{times(extent)} {what}; 1 to {x} × {y} × {z} are possible"
    if math.prod(grid.threads) > _MOST_THREADS:
        return f"its block of {times(grid.threads)} has more than {_MOST_THREADS} threads"
    if any(blocks % size for blocks, size in zip(grid.blocks, grid.cluster, strict=True)):
        return (
            f"its grid of {times(grid.blocks)} blocks does not consist of whole clusters of "
            f"{times(grid.cluster)}"
        )
    if grid.dynamic_bytes < 0:
        return "its shared_bytes are negative"
    static = 0 if machine_code is None else machine_code.shared_bytes
    limit = SHARED_BYTES.get(architecture)
    if limit is not None and grid.dynamic_bytes + static > limit:
        return (
            f"its blocks need {grid.dynamic_bytes + static} bytes of shared memory, and "
            f"{architecture} has {limit}"
        )
    return None if machine_code is None else _other_launch(grid, machine_code)


def _other_launch(grid: Grid, machine_code: CubinKernel) -> str | None:
    """Difference between the launch and the one that the code was compiled for, if any."""
    required, most = machine_code.required_threads, machine_code.max_threads
    if required is not None and grid.threads != required:
        return f"its block is {times(grid.threads)}, and the code requires {times(required)}"
    if most is not None and math.prod(grid.threads) > most:
        return f"its block of {times(grid.threads)} has more than the code's {most} threads"
    if machine_code.cluster is not None and grid.cluster != machine_code.cluster:
        return (
            f"its cluster is {times(grid.cluster)}, and the code requires "
            f"{times(machine_code.cluster)}"
        )
    return None


def plan_of(
    kernel: CudaManifest, operation: Operation, values: Mapping[str, Parameter]
) -> LaunchPlan:
    """The launch that computes `operation` with these macros, and those of the formats:
    ``IN_BF16`` 1, ``OUT_F32`` 1.

    Raises:
        ValueError: an expression has no value, or an argument is impossible.
    """
    names = names_of(operation, values)

    def extent(expressions: tuple[Expression, ...]) -> Extent:
        x, y, z = (*(one.value(names) for one in expressions), 1, 1, 1)[:3]
        return x, y, z

    own_cluster = None if kernel.machine_code is None else kernel.machine_code.cluster
    grid = Grid(
        blocks=extent(kernel.grid),
        threads=extent(kernel.block),
        cluster=extent(kernel.cluster) if kernel.cluster else own_cluster or (1, 1, 1),
        dynamic_bytes=kernel.shared_bytes.value(names),
    )
    s = operation.signature
    macros: dict[str, Parameter] = {f"IN_{s.lhs}".upper(): 1, f"OUT_{s.result}".upper(): 1}
    macros |= {name: int(v) if isinstance(v, bool) else v for name, v in values.items()}
    compilation = Compilation(
        source=str(kernel.path.with_suffix("")),
        entry=kernel.entry,
        options=tuple(f"-D{name}={value}" for name, value in macros.items()),
    )
    arguments = tuple(argument_for(one, operation, names) for one in kernel.arguments)
    launch = KernelLaunch(compilation=compilation, grid=grid, arguments=arguments)
    return LaunchPlan(launches=(launch,))


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
    kernel: CudaManifest, dispatch: Dispatch, workspace: Workspace
) -> tuple[LaunchPlan, CompiledPlan]:
    """The launch, its machine code for the dispatch's architecture, and the facts from building it.

    What is compiled is kept below ``workspace.generated``, and found again for the same source,
    headers and macros.

    Raises:
        UnsupportedError: the kernel does not compute the dispatch's operation on its target.
        CompileError: NVRTC is missing or rejected the source, or the source has no such kernel.
        StorageError: the compiler's output cannot be written.
    """
    values = kernel.configurations[dispatch.configuration.name]
    if reason := why_not(kernel, dispatch.operation, values, dispatch.target):
        raise UnsupportedError(f"{dispatch}: {reason}")
    plan = plan_of(kernel, dispatch.operation, values)
    if kernel.cubin is not None:
        return plan, _taken(kernel, kernel.cubin, plan, dispatch, workspace.generated)
    from gemmetry.hardware.cuda_compiler import compile_file
    from gemmetry.providers.cuda_provider.executable import CompiledPlan, facts_of, usage_of

    architecture = code_architecture(dispatch.target.architecture)
    (launch,) = plan.launches
    before = time.perf_counter_ns()
    cubin = compile_file(
        kernel.path.parent,
        kernel.path.stem,
        (),
        architecture,
        options=launch.compilation.options,
        # Not for other experiments: a source may include what is not in its folder.
        kept_in=workspace.generated / "user" / "cache",
        fresh=workspace.force,
    )
    elapsed_ns = time.perf_counter_ns() - before
    code = {launch.compilation: cubin}
    if not usage_of(plan, code):
        name = kernel.entry
        known = ", ".join(entries_of(kernel.path)) or "none"
        raise CompileError(
            f'{kernel.path.name} has no extern "C" __global__ function {name}; it has {known}',
            hint=f'Write extern "C" __global__ void {name}(...), without which C++ changes its '
            "name.",
        )
    place = dispatch, workspace.generated
    facts = facts_of(plan, code, launch.compilation, architecture, *place, {})
    notes = (f"{kernel} compiled by NVRTC", *facts.notes)
    own = replace(facts, compile_ns=elapsed_ns, declared=kernel.declared, notes=notes)
    return plan, CompiledPlan(code, own)


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
    from gemmetry.hardware.cuda_compiler import Cubin
    from gemmetry.providers.cuda_provider.executable import CompiledPlan

    (launch,) = plan.launches
    try:
        data = kernel.path.read_bytes()
    except OSError as error:
        raise CompileError(f"cannot read {kernel.path}: {error.strerror}") from None
    stated = contents.kernels[kernel.entry]
    name = f"{dispatch.configuration.name}{MACHINE_CODE}"
    facts = BuildFacts(
        registers=stated.registers,
        spill_bytes=stated.stack_bytes,
        shared_memory_bytes=stated.shared_bytes + launch.grid.dynamic_bytes,
        matrix_instruction=_disassembled_instruction(data),
        compiled_for=contents.architecture,
        declared=kernel.declared,
        notes=(f"{kernel} is machine code, as it was given",),
        **written_files(dispatch, generated, {"binary_path": (name, data)}),
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


def code_architecture(architecture: str) -> str:
    """The architecture to compile for: ``sm_90a`` for ``sm_90``."""
    has_variant = compute_capability(architecture) >= _FIRST_WITH_VARIANT
    return f"{architecture}a" if architecture[-1:].isdigit() and has_variant else architecture
