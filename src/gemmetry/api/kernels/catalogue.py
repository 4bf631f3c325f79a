"""The kernels of the ``cuda`` provider: which there are, and whether their machine code is what
their rows promise."""

from __future__ import annotations

from fnmatch import fnmatchcase

from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.providers.cuda_provider.launching import catalogue
from gemmetry.providers.cuda_provider.launching.checking import (
    CheckedVariant,
    check,
    variants_of,
)
from gemmetry.providers.cuda_provider.launching.kernel import ARCHITECTURE, CudaKernel
from gemmetry.providers.cuda_provider.provider import PROVIDER

_LISTED = (
    Column("name", required=True),
    Column("rung", ColumnType.INTEGER, description="place on the ladder"),
    Column("adds", description="what it does that the rung before does not", required=True),
    Column("configurations", ColumnType.TEXTS, required=True),
)

_CHECKED = (
    Column("name", required=True),
    Column("rung", ColumnType.INTEGER),
    Column("configurations", ColumnType.TEXTS, description="those that use it", required=True),
    Column("arch", required=True),
    Column("source", required=True),
    Column("entry", required=True),
    Column("macros", ColumnType.MAPPING, required=True),
    Column("status", choices=("ok", "failed"), required=True),
    Column("registers", ColumnType.INTEGER, description="of a thread"),
    Column("spill_bytes", ColumnType.INTEGER, "B", "spilled registers of a thread"),
    Column("local_bytes", ColumnType.INTEGER, "B", "local memory of a thread"),
    Column("shared_bytes", ColumnType.INTEGER, "B", "shared memory of a block"),
    Column("expected_instructions", ColumnType.TEXTS, required=True),
    Column(
        "missing_instructions",
        ColumnType.TEXTS,
        description="expected ones that the machine code lacks; no value: not disassembled",
    ),
    Column("not_disassembled", description="why not"),
    Column("problems", ColumnType.TEXTS, description="why it failed", required=True),
)


def list_kernels() -> Table:
    """All kernels, the ladder first, with the configurations of a small product of each."""
    rows = [
        (kernel.name, kernel.rung, kernel.adds, _names(kernel))
        for kernel in _ladder_first(catalogue.kernels())
    ]
    return Table("kernels", _LISTED, rows)


def check_kernels(
    pattern: str | None = None,
    *,
    jobs: int = 1,
) -> Table:
    """Compile every kernel in each of its configurations, GPU or not, and check the machine code.

    Args:
        pattern: a glob on the kernels' names; None: all.
        jobs: threads that compile.

    Raises:
        EmptySelectionError: no kernel has such a name.
        RequestError: the bindings are not installed. CompileError: the compiler is missing.
    """
    if reason := PROVIDER().available():
        raise RequestError(f"the kernels cannot be compiled here: {reason}")
    chosen = [
        kernel
        for kernel in _ladder_first(catalogue.kernels())
        if pattern is None or fnmatchcase(kernel.name, pattern)
    ]
    if not chosen:
        raise EmptySelectionError(
            f"no kernel matches {pattern!r}", hint="gemmetry kernels list lists them all."
        )
    variants = [variant for kernel in chosen for variant in variants_of(kernel)]
    return Table("kernels", _CHECKED, [_row(one) for one in check(variants, jobs)])


def _ladder_first(kernels: tuple[CudaKernel, ...]) -> list[CudaKernel]:
    return sorted(kernels, key=lambda one: (one.rung is None, one.rung or 0, one.name))


def _names(kernel: CudaKernel) -> list[str]:
    found = (one.name for name in kernel.checked for one in kernel.legal(parse_operation(name)))
    return list(dict.fromkeys(found))


def _row(checked: CheckedVariant) -> tuple[object, ...]:
    variant, usage = checked.variant, checked.usage
    kernel, compilation = variant.kernel, variant.compilation
    return (
        kernel.name,
        kernel.rung,
        variant.configurations,
        ARCHITECTURE,
        compilation.source,
        compilation.entry,
        dict(compilation.macros),
        "failed" if checked.problems else "ok",
        usage.registers if usage else None,
        usage.spill_bytes if usage else None,
        usage.local_bytes if usage else None,
        usage.shared_bytes if usage else None,
        list(variant.expected),
        None if checked.missing is None else list(checked.missing),
        checked.unchecked or None,
        list(checked.problems),
    )
