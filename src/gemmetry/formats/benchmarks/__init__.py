"""The formats of other benchmarks' results: what declares how each is recognised and read, and what
every reader returns.

A module that is added here, with its :class:`ResultFormat` objects as ``FORMATS``, is found, read
and listed among what is supported; nothing names it.
"""

from __future__ import annotations

import csv
import importlib
import math
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import GemmetryError, Outcome, RequestError
from gemmetry.domain.opening import read_whole
from gemmetry.domain.operation import (
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
    Signature,
    parse_dtype,
)

_LARGEST = 2**63 - 1
"""Largest integer of the store."""


class RowError(ValueError):
    """A row cannot be imported; the message says why."""


def factor(row: Mapping[str, str], column: str, usual: float) -> float:
    """The factor (alpha or beta) in a column of a row; `usual` where the row has none.

    Raises:
        RowError: the column holds something else.
    """
    try:
        return float(row.get(column) or usual)
    except ValueError:
        raise RowError(f"{column} is {row[column]!r}, not a number") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignResult:
    """One kernel on one problem, as the file states it."""

    operation: Operation
    configuration: str
    """Name of the kernel in the file."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    time_ns: float | None = None
    """Time of one launch; None where the kernel failed, or where `samples_ns` are stated."""
    statistic: str = "median"
    """Statistic of `time_ns`: ``median`` or ``mean``."""
    samples_ns: tuple[float, ...] = ()
    outcome: Outcome = Outcome.OK
    reason: str = ""
    """Reason why the outcome is not ok."""
    device: str = ""
    """The device's name; empty where the file does not state it."""


@dataclass(slots=True, kw_only=True)
class ForeignFile:
    """Content of a file."""

    results: list[ForeignResult] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Rows that were left out, each with its place and the reason."""


@dataclass(frozen=True, slots=True)
class StatedOperation:
    """User's statement about the problems of a file without one: a whole operation, or formats and
    layouts only."""

    text: str = ""
    """``matmul_64x64x64_f16t_f16t_f16t``, ``f16t_f16t_f16t``, or nothing."""

    def whole(self) -> Operation:
        """The operation that all rows of a file compute.

        Raises:
            RowError: no operation is stated, or only its formats.
        """
        try:
            return parse_operation(self.text)
        except GemmetryError:
            raise RowError(
                "the file does not state the problem; add --operation with its whole name, such as "
                "matmul_4096x4096x4096_f32t_f32t_f32t"
            ) from None

    def at(self, m: int, n: int, k: int, batch: int = 1) -> Operation:
        """The operation with the stated formats and layouts at a shape that the file states.

        Raises:
            RowError: nothing is stated, or the shape is not positive.
        """
        kind = "matmul" if batch == 1 else "batch_matmul"
        shape = f"{m}x{n}x{k}" if batch == 1 else f"{batch}x{m}x{n}x{k}"
        try:
            if self.text.startswith(("matmul_", "batch_matmul_")):
                signature = parse_operation(self.text).signature
                return _stored(Operation(signature, MatmulShape(m, n, k, batch)))
            return _stored(parse_operation(f"{kind}_{shape}_{self.text}"))
        except GemmetryError as error:
            why = error.message if self.text else "the file does not state the formats"
            raise RowError(f"{why}; add --operation with formats and layouts, such as "
                           "f16t_f16t_f16t") from None  # fmt: skip


def product(
    sizes: tuple[int, int, int, int],
    formats: tuple[str, str, str],
    layouts: tuple[Layout, Layout, Layout],
    accumulator: str = "",
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Operation:
    """The product of M, N, K and the batch, with formats and layouts of A, B and C.

    Raises:
        RowError: a size is not positive, a format is unknown, or they contradict each other.
    """
    m, n, k, batch = sizes
    if min(sizes) < 1:
        raise RowError(f"the shape {m}×{n}×{k}, batch {batch}, is not positive")
    try:
        lhs, rhs, result = map(parse_dtype, formats)
        signature = Signature(
            kind=OperationKind.MATMUL if batch == 1 else OperationKind.BATCH_MATMUL,
            lhs=lhs, rhs=rhs, result=result,
            lhs_layout=layouts[0], rhs_layout=layouts[1], result_layout=layouts[2],
            accumulator=parse_dtype(accumulator) if accumulator else None,  # type: ignore[arg-type]
            alpha=alpha, beta=beta,
        )  # fmt: skip
    except (GemmetryError, ValueError) as error:
        raise RowError(str(getattr(error, "message", error))) from None
    return _stored(Operation(signature, MatmulShape(m, n, k, batch)))


def _stored(operation: Operation) -> Operation:
    """`operation`, whose counts a record can store.

    Raises:
        RowError: a count is too large.
    """
    if max(operation.flops, operation.bytes) > _LARGEST:
        raise RowError(f"the shape of {operation} is impossibly large")
    return operation


def milliseconds(value: object, what: str, unit: str = "milliseconds") -> float:
    """A time in ms, or in ``microseconds``, in ns.

    Raises:
        RowError: not a positive number.
    """
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise RowError(f"{what} is {value!r}, not a positive number of {unit}")
    return number * (1e3 if unit == "microseconds" else 1e6)


def integer(value: object, what: str) -> int:
    """Raises:
    RowError: not a whole number.
    """
    try:
        return int(str(value))
    except ValueError:
        raise RowError(f"{what} is {value!r}, not a whole number") from None


def plain_name(text: str) -> str:
    """A configuration's name: letters and digits, joined by ``_``."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFormat:
    """Recognition and reader of one benchmark's files."""

    name: str
    """The provider's name in records: ``cutlass_profiler``."""
    summary: str
    """Description in the list of supported formats."""
    recognises: Callable[[str], bool]
    """Whether a file with this text has the format."""
    rows: Callable[[str], Iterable[tuple[object, Any]]]
    """The rows in the text of a file, each with its line or name; instead of one that is left out,
    the reason as an exception."""
    result: Callable[[Any, StatedOperation, Path], ForeignResult | None]
    """The result in a row of the file at this path, if it has one; raises :class:`RowError`."""


@cache
def result_formats() -> tuple[ResultFormat, ...]:
    """All formats, in the order of their names."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    found = [form for module in modules for form in module.FORMATS]
    return tuple(sorted(found, key=lambda form: form.name))


def read_results(path: Path, stated: StatedOperation) -> tuple[ResultFormat, ForeignFile]:
    """Read a file, and find its format.

    Raises:
        RequestError: the file cannot be read, or no format recognises it.
    """
    text = read_whole(path).decode("utf-8", errors="replace").removeprefix("\ufeff")
    form = next((form for form in result_formats() if form.recognises(text)), None)
    if form is None:
        *most, last = [form.summary for form in result_formats()]
        raise RequestError(
            f"{path} contains no results of a known format",
            hint=f"Supported: {', '.join(most)} and {last}; also compressed (.gz, .zst).",
        )
    found = ForeignFile()
    for place, row in form.rows(text):
        try:
            if isinstance(row, Exception):
                raise row
            result = form.result(row, stated, path)
        except (ValueError, csv.Error) as error:  # RowError, and numbers of thousands of digits
            why = str(error)
        except (KeyError, TypeError, AttributeError) as error:
            why = f"it lacks a field or has another: {error}"
        else:
            found.results += [result] if result is not None else []
            continue
        found.problems.append(f"{path.name}:{place}: {why}" if place else f"{path.name}: {why}")
    return form, found


def table_row(header: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """The cells of a row by column.

    Raises:
        RowError: their number is not that of the columns.
    """
    if len(cells) != len(header):
        raise RowError(f"it has {len(cells)} cells, and the header {len(header)}")
    return dict(zip(header, map(str.strip, cells), strict=True))
