"""From an operation and a configuration of a user's CUDA C++ kernel to macros and a launch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from gemmetry.domain.dispatch import Parameter
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.user_provider.cuda.expressions import Expression
from gemmetry.providers.user_provider.cuda.manifest import TENSORS, CudaManifest

_LARGEST = 2**31 - 1
"""Of an int argument, and of a grid along x."""

_LIMITS = {
    "grid": (_LARGEST, 65535, 65535),
    "block": (1024, 1024, 64),
    "cluster": (16, 16, 16),
}
"""Along x, y and z: CUDA C++ Programming Guide, technical specifications per compute capability;
clusters of more than eight blocks are non-portable, of more than 16 impossible (sm_90)."""
_MOST_THREADS = 1024
"""Of a block: the same table."""

Extent = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LaunchSizes:
    """How many blocks and threads a launch has, and its memory."""

    grid: Extent
    block: Extent
    cluster: Extent
    shared_bytes: int


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
        sizes = launch_sizes(kernel, operation, values)
        for argument in kernel.arguments:
            if isinstance(argument, Expression) and abs(argument.value(names)) > _LARGEST:
                return f"{kernel}: the argument {argument.text} does not fit an int"
    except ValueError as error:
        return f"{kernel}: {error}"
    return _size_problem(kernel, sizes)


@cache
def _has_bindings() -> bool:
    try:
        return find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


def _with_values(condition: Expression, names: Mapping[str, int]) -> str:
    values = ", ".join(f"{name} = {names[name]}" for name in sorted(condition.names))
    return f"{condition.text}, and {values}" if values else condition.text


def _size_problem(kernel: CudaManifest, sizes: LaunchSizes) -> str | None:
    for what, limits in _LIMITS.items():
        extent = getattr(sizes, what)
        if any(not 1 <= size <= limit for size, limit in zip(extent, limits, strict=True)):
            x, y, z = limits
            return f"{kernel}: its {what} is {_times(extent)}; 1 to {x} × {y} × {z} are possible"
    x, y, z = sizes.block
    if x * y * z > _MOST_THREADS:
        return f"{kernel}: its block of {_times(sizes.block)} has more than {_MOST_THREADS} threads"
    if any(blocks % size for blocks, size in zip(sizes.grid, sizes.cluster, strict=True)):
        return (
            f"{kernel}: its grid of {_times(sizes.grid)} blocks does not consist of whole clusters "
            f"of {_times(sizes.cluster)}"
        )
    return None if sizes.shared_bytes >= 0 else f"{kernel}: its shared_bytes are negative"


def _times(extent: Extent) -> str:
    return " × ".join(map(str, extent))


def launch_sizes(
    kernel: CudaManifest, operation: Operation, values: Mapping[str, Parameter]
) -> LaunchSizes:
    """Raises:
    ValueError: an expression has no value.
    """
    names = names_of(operation, values)

    def extent(expressions: tuple[Expression, ...]) -> Extent:
        x, y, z = (*(one.value(names) for one in expressions), 1, 1, 1)[:3]
        return x, y, z

    return LaunchSizes(
        extent(kernel.grid),
        extent(kernel.block),
        extent(kernel.cluster),
        kernel.shared_bytes.value(names),
    )


@dataclass(frozen=True, slots=True)
class Arguments:
    """The kernel's arguments; only addresses change from launch to launch."""

    values: tuple[Any, ...]
    """ctypes objects in the kernel's order."""
    inputs: tuple[tuple[int, int], ...]
    """Position of an address, and of its tensor in ``operation.inputs``."""
    outputs: tuple[int, ...]
    """Positions of the result's address."""


def arguments_for(
    kernel: CudaManifest, operation: Operation, values: Mapping[str, Parameter]
) -> Arguments:
    """The arguments of a launch, with null in place of addresses."""
    names = names_of(operation, values)
    roles = {spec.role: index for index, spec in enumerate(operation.inputs)}
    made: list[Any] = []
    inputs, outputs = [], []
    for position, argument in enumerate(kernel.arguments):
        if isinstance(argument, Expression):
            made.append(ctypes.c_int(argument.value(names)))
        elif argument in TENSORS:
            made.append(ctypes.c_void_p(None))
            role = TENSORS[argument]
            if role == "result":
                outputs.append(position)
            elif role in roles:
                inputs.append((position, roles[role]))
        else:
            made.append(ctypes.c_float(getattr(operation.signature, argument)))
    return Arguments(tuple(made), tuple(inputs), tuple(outputs))
