"""Changes of inputs in a few places, and their effect on the result.

A line of A (a row, or an image of a convolution) affects one line of the result only, and so does a
column of B (a filter). If one line changes, the new reference therefore differs from the old one in
one line, which is a product with a single row or column and costs 1/M or 1/N of the whole. A result
can thus be checked on inputs that the kernel has never seen, at almost no cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmetry.domain.dtypes import E8M0
from gemmetry.domain.operation import Conv2dShape, Layout, MatmulShape, Operation, TensorSpec
from gemmetry.numerics.references import (
    Matmul,
    Reference,
    Scalar,
    compute_reference,
    to_logical,
    to_storage,
)
from gemmetry.numerics.storage import Array, numpy_dtype

Index = tuple[slice, ...]
"""Index of the part of an array that is written."""

_BY_ROW = frozenset({"lhs", "addend", "residual", "scale_a"})
_BY_COLUMN = frozenset({"rhs", "addend", "residual", "scale_b", "bias"})
"""Operands that have one line per row, and per column, of the result, unless they are scalars."""

_NAMES = {
    "lhs": "row {} of A",
    "rhs": "column {} of B",
    "addend": "row {} of C",
    "residual": "row {} of the residual",
    "scale_a": "scale {} of A",
    "scale_b": "scale {} of B",
    "bias": "element {} of the bias",
}

_SINGLE = {"scale_a": "the scale of A", "scale_b": "the scale of B"}


class ChangeKind(StrEnum):
    """How one or two lines change. Each kind preserves a property that a cache might compare."""

    ONE_ELEMENT = "changed in one element"
    """One number changes its sign; all other numbers and all magnitudes stay the same."""
    LAST_ELEMENT = "changed in its last element"
    """The same for the last number in memory, which a checksum with a stride may leave out."""
    CROSSED = "prepared for an exchange where it crosses another"
    """Two lines hold a, b and b, a at two places, where b is -a: the starting point of the next
    kind."""
    EXCHANGED = "changed where it crosses another, by exchanging a, b and b, a"
    """Both lines, and both lines that cross them, hold the same numbers as before in another order.
    This preserves sums, sums of powers and magnitudes of every row and column, sums weighted by
    position (Fletcher's and Adler's checksums) and all sums that ignore order."""
    SWAPPED = "swapped with another"
    """Two lines are swapped, which preserves all statistics of each line, and sums over the other
    axis."""
    NEGATED = "negated"
    """Every number changes, but no magnitude does."""
    ELEMENTS_SWAPPED = "changed by swapping two elements"
    """The sum over the line and everything outside the line stay the same."""


@dataclass(frozen=True, eq=False)
class InputChange:
    """New contents of some lines of an operand."""

    kind: ChangeKind
    place: int
    """In ``operation.inputs``: 0 for A, 1 for B."""
    role: str
    lines: tuple[int, ...]
    """Rows of A (images of a convolution) or columns of B (filters), and the matching lines of
    other operands, in every matrix of a batch. None for a scalar scale factor, which affects the
    whole result."""
    contents: Array
    """The new contents: the operand's logical shape, with only the lines that change."""

    def __str__(self) -> str:
        if not self.lines:
            return f"{_SINGLE[self.role]} {self.kind}"
        return f"{_NAMES[self.role].format(self.lines[0])} {self.kind}"


@dataclass(frozen=True)
class Edit:
    """A line to write: the operand, the index into its stored array, and the contents."""

    place: int
    index: Index
    contents: Array


def negative(array: Array) -> Array:
    """``-array``; for integers ``-array - 1``, as -128 has no counterpart in 8 bits; a
    neighbouring power of two for e8m0, which has no sign."""
    if array.dtype == numpy_dtype(E8M0):
        return np.asarray((array.view(np.uint8) ^ np.uint8(1)).view(array.dtype))
    is_integer = np.issubdtype(array.dtype, np.integer)
    return np.asarray(np.invert(array) if is_integer else np.negative(array))


def negates_result(operation: Operation, change: InputChange) -> bool:
    """Whether the exact result changes only by the sign of the lines of `change`. Integers are
    complemented, not negated."""
    s = operation.signature
    is_linear = s.beta == 0 and not s.epilogue
    is_float = not (s.lhs.is_integer or s.rhs.is_integer or s.result.is_integer)
    roles = ("lhs", "rhs")
    return is_linear and is_float and change.kind is ChangeKind.NEGATED and change.role in roles


def changeable(operation: Operation) -> tuple[int, ...]:
    """Positions of the operands that have lines: all except scalar scale factors."""
    return tuple(
        place
        for place, spec in enumerate(operation.inputs)
        if _has_lines(spec, operation.output, line_axis(operation, place))
    )


def line_axis(operation: Operation, place: int) -> int:
    """The axis, of an operand and of the result, along which lines are counted."""
    role = operation.inputs[place].role
    is_convolution = isinstance(operation.shape, Conv2dShape)
    if role not in _BY_ROW or (is_convolution and role != "lhs"):
        return -1
    return -4 if is_convolution else -2


def edits(operation: Operation, change: InputChange) -> list[Edit]:
    """The edits that make `change`, one per line."""
    if not change.lines:
        return [Edit(change.place, (slice(None),), change.contents)]
    spec, axis = operation.inputs[change.place], line_axis(operation, change.place)
    return _line_edits(spec, axis, change.place, change.lines, change.contents)


def undoing(operation: Operation, inputs: Sequence[Array], change: InputChange) -> list[Edit]:
    """The edits that restore `inputs`."""
    if not change.lines:
        return [Edit(change.place, (slice(None),), inputs[change.place])]
    spec, axis = operation.inputs[change.place], line_axis(operation, change.place)
    before = lines_of(to_logical(inputs[change.place], spec), change.lines, axis)
    return _line_edits(spec, axis, change.place, change.lines, before)


def result_edits(operation: Operation, change: InputChange, lines: Array) -> list[Edit]:
    """The edits that write `lines`, the result's lines of `change` in logical shape, into a stored
    result, which has place 0."""
    axis = line_axis(operation, change.place)
    return _line_edits(operation.output, axis, 0, change.lines, lines)


def changed_inputs(
    operation: Operation, inputs: Sequence[Array], change: InputChange
) -> tuple[Array, ...]:
    """`inputs` with the change applied to a copy of its operand."""
    changed = list(inputs)
    changed[change.place] = np.array(inputs[change.place])
    for edit in edits(operation, change):
        changed[change.place][edit.index] = edit.contents
    return tuple(changed)


def part_with_lines(
    operation: Operation, inputs: Sequence[Array], changes: Sequence[InputChange]
) -> tuple[Operation, tuple[Array, ...]]:
    """The operation that computes only the result's lines of `changes`, one after the other, and
    the inputs of that operation.

    Args:
        changes: at least one; all are changes of the same operand.
    """
    place, axis = changes[0].place, line_axis(operation, changes[0].place)
    lines = [line for change in changes for line in change.lines]
    shape = operation.shape
    if isinstance(shape, Conv2dShape):
        shape = shape._replace(f=len(lines)) if axis == -1 else shape._replace(n=len(lines))
    else:
        assert isinstance(shape, MatmulShape)
        shape = shape._replace(n=len(lines)) if axis == -1 else shape._replace(m=len(lines))
    followers = _BY_COLUMN if axis == -1 else _BY_ROW
    signature, per_factor = operation.signature, 1
    if signature.blocks is not None:
        # A factor that several lines share becomes one of each line.
        blocks = signature.blocks
        per_factor = blocks.columns if axis == -1 else blocks.rows
        blocks = replace(blocks, columns=1) if axis == -1 else replace(blocks, rows=1)
        signature = replace(signature, scaling=blocks)
    part = Operation(signature, shape)
    taken = []
    for i, (spec, small, array) in enumerate(
        zip(operation.inputs, part.inputs, inputs, strict=True)
    ):
        if i == place:
            contents = np.concatenate([change.contents for change in changes], axis)
            taken.append(to_storage(contents, small))
        elif spec.role in followers and spec.role in _SINGLE and per_factor > 1:
            shared = [line // per_factor for line in lines]
            taken.append(to_storage(lines_of(to_logical(array, spec), shared, axis), small))
        elif spec.role in followers and _has_lines(spec, operation.output, axis):
            taken.append(to_storage(lines_of(to_logical(array, spec), lines, axis), small))
        else:
            taken.append(array)
    return part, tuple(taken)


def changed_reference(
    operation: Operation,
    inputs: Sequence[Array],
    reference: Reference,
    change: InputChange,
    *,
    matmul: Matmul | None = None,
) -> Reference:
    """The reference of `inputs` with `change` applied, derived from the `reference` without it.

    Args:
        matmul: as of :func:`gemmetry.numerics.references.compute_reference`.
    """
    part, taken = part_with_lines(operation, inputs, [change])
    found = compute_reference(part, taken, matmul=matmul)
    return reference_with_lines(operation, reference, change, found)


def reference_with_lines(
    operation: Operation, reference: Reference, change: InputChange, lines: Reference
) -> Reference:
    """A copy of `reference` with `lines` where `change` affects it."""
    extra = reference.extra_rounding
    if extra is not None and lines.extra_rounding is not None:
        extra = with_lines(operation, extra, change, lines.extra_rounding)
    return replace(
        reference,
        value=with_lines(operation, reference.value, change, lines.value),
        magnitude=with_lines(operation, reference.magnitude, change, lines.magnitude),
        extra_rounding=extra,
    )


def with_lines(
    operation: Operation,
    whole: npt.NDArray[Scalar],
    change: InputChange,
    lines: npt.NDArray[Scalar],
) -> npt.NDArray[Scalar]:
    """A copy of `whole`, a result in logical shape, in which `lines` replace the rows or columns
    that `change` affects."""
    axis = line_axis(operation, change.place)
    copy = np.array(whole)
    np.moveaxis(copy, axis, 0)[list(change.lines)] = np.moveaxis(lines, axis, 0)
    return copy


def take_lines(operation: Operation, whole: Array, change: InputChange) -> Array:
    """The part of a result in logical shape that `change` affects."""
    return lines_of(whole, change.lines, line_axis(operation, change.place))


def lines_of(array: Array, lines: Sequence[int], axis: int) -> Array:
    """A copy of some lines along `axis`. ``np.take`` would first copy the whole array where it is
    not C-contiguous, as for a transposed matrix."""
    taken: Array = array[_along(axis, list(lines))]
    return taken


def _along(axis: int, part: list[int] | slice) -> tuple[Any, ...]:
    """The index of a part along `axis`, which counts from the end. ``np.moveaxis`` would take
    several times as long for the small arrays of most checks."""
    return (..., part, *(slice(None),) * (-1 - axis))


def split_lines(
    operation: Operation, changes: Sequence[InputChange], result: Array
) -> Iterator[tuple[InputChange, Array]]:
    """Each change with its part of `result`, a result of :func:`part_with_lines`."""
    start, axis = 0, line_axis(operation, changes[0].place)
    for change in changes:
        stop = start + len(change.lines)
        yield change, result[_along(axis, slice(start, stop))]
        start = stop


def _has_lines(spec: TensorSpec, output: TensorSpec, axis: int) -> bool:
    return len(spec.shape) >= -axis and spec.shape[axis] == output.shape[axis]


def _line_edits(
    spec: TensorSpec, axis: int, place: int, lines: Sequence[int], contents: Array
) -> list[Edit]:
    stored_axis = axis
    if spec.layout is Layout.COLUMN and axis in (-1, -2):
        stored_axis = -3 - axis
    found = []
    for number, line in enumerate(lines):
        index = [slice(None)] * len(spec.shape)
        index[stored_axis] = slice(line, line + 1)
        part = contents[_along(axis, slice(number, number + 1))]
        found.append(Edit(place, tuple(index), to_storage(part, spec)))
    return found
