"""From an operation and a configuration of a user's CUDA C++ kernel to macros and a launch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec

from gemmetry.devices.cuda_plans import (
    Argument,
    Compilation,
    Extent,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Pointer,
)
from gemmetry.domain.dispatch import Parameter
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.user_provider.cuda.expressions import Expression
from gemmetry.providers.user_provider.cuda.manifest import TENSORS, CudaManifest

_LARGEST = 2**31 - 1
"""Of an int argument, and of a grid along x."""

_LIMITS = {
    "blocks": (_LARGEST, 65535, 65535),
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
        return (
            f"{kernel} is CUDA C++, which runs on NVIDIA GPUs; `gemmetry compile --device "
            "cuda-sm_90` compiles it without one"
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
    for argument, number in zip(kernel.arguments, launch.arguments, strict=True):
        if isinstance(argument, Expression) and isinstance(number, int) and abs(number) > _LARGEST:
            return f"{kernel}: the argument {argument.text} does not fit an int"
    return _grid_problem(kernel, launch.grid)


@cache
def _has_bindings() -> bool:
    try:
        return find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


def _with_values(condition: Expression, names: Mapping[str, int]) -> str:
    values = ", ".join(f"{name} = {names[name]}" for name in sorted(condition.names))
    return f"{condition.text}, and {values}" if values else condition.text


def _grid_problem(kernel: CudaManifest, grid: Grid) -> str | None:
    for what, limits in _LIMITS.items():
        extent = getattr(grid, what)
        if any(not 1 <= size <= limit for size, limit in zip(extent, limits, strict=True)):
            x, y, z = limits
            return f"{kernel}: {_times(extent)} {what}; 1 to {x} × {y} × {z} are possible"
    x, y, z = grid.threads
    if x * y * z > _MOST_THREADS:
        return (
            f"{kernel}: its block of {_times(grid.threads)} has more than {_MOST_THREADS} threads"
        )
    if any(blocks % size for blocks, size in zip(grid.blocks, grid.cluster, strict=True)):
        return (
            f"{kernel}: its grid of {_times(grid.blocks)} blocks does not consist of whole "
            f"clusters of {_times(grid.cluster)}"
        )
    return None if grid.dynamic_bytes >= 0 else f"{kernel}: its shared_bytes are negative"


def _times(extent: Extent) -> str:
    return " × ".join(map(str, extent))


def plan_of(
    kernel: CudaManifest, operation: Operation, values: Mapping[str, Parameter]
) -> LaunchPlan:
    """The launch that computes `operation` with these macros.

    Raises:
        ValueError: an expression has no value.
    """
    names = names_of(operation, values)

    def extent(expressions: tuple[Expression, ...]) -> Extent:
        x, y, z = (*(one.value(names) for one in expressions), 1, 1, 1)[:3]
        return x, y, z

    grid = Grid(
        blocks=extent(kernel.grid),
        threads=extent(kernel.block),
        cluster=extent(kernel.cluster),
        dynamic_bytes=kernel.shared_bytes.value(names),
    )
    macros = macros_for(operation, values)
    compilation = Compilation(
        source=str(kernel.path.with_suffix("")),
        entry=kernel.function_name,
        options=tuple(f"-D{name}={value}" for name, value in macros.items()),
    )
    arguments = tuple(_argument(one, operation, names) for one in kernel.arguments)
    launch = KernelLaunch(compilation=compilation, grid=grid, arguments=arguments)
    return LaunchPlan(launches=(launch,))


def _argument(
    argument: str | Expression, operation: Operation, names: Mapping[str, int]
) -> Argument:
    if isinstance(argument, Expression):
        return argument.value(names)
    if argument not in TENSORS:
        return float(getattr(operation.signature, argument))
    present = {spec.role for spec in (*operation.inputs, operation.output)}
    role = TENSORS[argument]
    return Pointer(role) if role in present else None
