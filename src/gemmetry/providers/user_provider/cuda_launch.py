"""From an operation and a configuration of a user's CUDA kernel to macros and a launch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec

from gemmetry.domain.dispatch import Parameter, Target, TargetKind
from gemmetry.domain.operation import Operation
from gemmetry.hardware.cuda_plans import (
    Compilation,
    CubinKernel,
    Extent,
    Grid,
    KernelLaunch,
    LaunchPlan,
)
from gemmetry.providers.base import SHARED_BYTES
from gemmetry.providers.user_provider.cuda_manifest import CudaManifest, Expression, argument_for

_LIMITS = {
    "blocks": (2**31 - 1, 65535, 65535),
    "threads": (1024, 1024, 64),
    "cluster": (16, 16, 16),
}
"""Along x, y and z: CUDA C++ Programming Guide, technical specifications per compute capability;
clusters of more than eight blocks are non-portable, of more than 16 impossible (sm_90)."""
_MOST_THREADS = 1024
"""Of a block: the same table."""


def names_of(operation: Operation, values: Mapping[str, Parameter]) -> dict[str, int]:
    """What expressions of a manifest can mention: sizes, and macros that are integers."""
    m, n, k, batch = operation.matmul_shape
    slices = operation.signature.split_k_slices
    sizes = {"M": m, "N": n, "K": k, "BATCH": batch, "SLICES": slices}
    return sizes | {name: int(v) for name, v in values.items() if isinstance(v, int)}


def macros_for(operation: Operation, values: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """The configuration's macros, and those of the formats: ``IN_BF16`` 1, ``OUT_F32`` 1."""
    s = operation.signature
    formats = {f"IN_{str(s.lhs).upper()}": 1, f"OUT_{str(s.result).upper()}": 1}
    given = {name: int(v) if isinstance(v, bool) else v for name, v in values.items()}
    return {**formats, **given}


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
                return f"{kernel} requires {_with_values(condition, names)}"
        (launch,) = plan_of(kernel, operation, values).launches
    except ValueError as error:
        return f"{kernel}: {error}"
    problem = _grid_problem(launch.grid, target.architecture, kernel.machine_code)
    return None if problem is None else f"{kernel}: {problem}"


@cache
def _has_bindings() -> bool:
    try:
        return find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


def _with_values(condition: Expression, names: Mapping[str, int]) -> str:
    values = ", ".join(f"{name} = {names[name]}" for name in sorted(condition.names))
    return f"{condition.text}, and {values}" if values else condition.text


def _grid_problem(grid: Grid, architecture: str, machine_code: CubinKernel | None) -> str | None:
    for what, limits in _LIMITS.items():
        extent = getattr(grid, what)
        if any(not 1 <= size <= limit for size, limit in zip(extent, limits, strict=True)):
            x, y, z = limits
            return f"{_times(extent)} {what}; 1 to {x} × {y} × {z} are possible"
    threads = math.prod(grid.threads)
    if threads > _MOST_THREADS:
        return f"its block of {_times(grid.threads)} has more than {_MOST_THREADS} threads"
    if any(blocks % size for blocks, size in zip(grid.blocks, grid.cluster, strict=True)):
        return (
            f"its grid of {_times(grid.blocks)} blocks does not consist of whole clusters of "
            f"{_times(grid.cluster)}"
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
    """How the launch differs from what the code was compiled for, if it does."""
    required, most = machine_code.required_threads, machine_code.max_threads
    if required is not None and grid.threads != required:
        return f"its block is {_times(grid.threads)}, and the code requires {_times(required)}"
    if most is not None and math.prod(grid.threads) > most:
        return f"its block of {_times(grid.threads)} has more than the code's {most} threads"
    if machine_code.cluster is not None and grid.cluster != machine_code.cluster:
        return (
            f"its cluster is {_times(grid.cluster)}, and the code requires "
            f"{_times(machine_code.cluster)}"
        )
    return None


def _times(extent: Extent) -> str:
    return " × ".join(map(str, extent))


def plan_of(
    kernel: CudaManifest, operation: Operation, values: Mapping[str, Parameter]
) -> LaunchPlan:
    """The launch that computes `operation` with these macros.

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
    macros = macros_for(operation, values)
    compilation = Compilation(
        source=str(kernel.path.with_suffix("")),
        entry=kernel.entry,
        options=tuple(f"-D{name}={value}" for name, value in macros.items()),
    )
    arguments = tuple(argument_for(one, operation, names) for one in kernel.arguments)
    launch = KernelLaunch(compilation=compilation, grid=grid, arguments=arguments)
    return LaunchPlan(launches=(launch,))
