"""Compares whole rows and columns, sampled over a result, with their exact reference.

They cost O(K·(M + N)) where the whole reference costs O(MNK). One row is drawn at random from each
of several equal strata, so that every tile and every position within a tile can be drawn; the first
and the last row are always included.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import Conv2dShape, Layout, MatmulShape, Operation, OperationKind
from gemmetry.domain.record import Trait
from gemmetry.numerics.bounds import half_ulp
from gemmetry.numerics.references import (
    OperandSizes,
    Reference,
    compute_reference,
    logical_tensors,
    operand_sizes,
    to_logical,
    to_storage,
)
from gemmetry.numerics.storage import Array, Float64Array, to_float64
from gemmetry.verification.comparison import ErrorStatistics, compare

LINES = 32
"""Number of rows, and of columns, of one sample; for a convolution twice as many pixels."""

_MEMBERS = 4
"""Number of sampled matrices of a batch; each costs a pass over its operands."""

_BLOCK = 1 << 24
"""Elements of an operand widened to float64 at a time."""

Indices = npt.NDArray[np.intp]


@dataclass
class Line:
    """One sampled row or column."""

    index: int
    """Index of a row in the result reshaped to (-1, last axis), or of a column in its matrix."""
    member: int
    squared_error: float = 0.0
    """Sum over the elements within their bounds."""
    squared_half_ulp: float = 0.0
    is_bad: bool = False


@dataclass
class ElementSample:
    """Result of comparing some rows or columns."""

    statistics: ErrorStatistics
    lines: list[Line] = field(default_factory=list)

    @property
    def bad(self) -> set[int]:
        """Indices of the lines with wrong elements."""
        return {line.index for line in self.lines if line.is_bad}


class ElementSampler:
    """Compares rows and columns of one result.

    Args:
        inputs: host arrays of ``operation.inputs``. output: host array in storage shape.
        declared: the executable's declarations about its arithmetic.
    """

    def __init__(
        self,
        operation: Operation,
        inputs: Sequence[Array],
        output: Array,
        *,
        seed: int,
        declared: Collection[Trait] = (),
    ) -> None:
        self.operation = operation
        self.declared = declared
        self.tensors = logical_tensors(operation, inputs)
        self.tensors["result"] = to_logical(output, operation.output)
        self.rng = np.random.default_rng([seed % 2**64, 0x5A3B])
        # Bounds by norm refer to the whole operands, not to the few rows that are multiplied here.
        self.sizes: OperandSizes | None = None
        if declared and not operation.signature.lhs.is_integer:
            self.sizes = operand_sizes(operation, inputs)

    def rows(self, also: Sequence[int] = ()) -> ElementSample:
        """Compare rows of the result reshaped to (-1, last axis), including `also`; pixels of a
        convolution."""
        if isinstance(self.operation.shape, Conv2dShape):
            return self._pixels(self.operation.shape, also)
        m, n, _, _ = self.operation.matmul_shape
        sample = ElementSample(ErrorStatistics(elements=0))
        for member, rows in self._places(m, also):
            lines = [Line(int(row) + member * m, member) for row in rows]
            tensors = self._of_member(member)
            for columns in self._blocks(n):
                self._compare(sample, lines, tensors, rows, columns, axis=1)
            sample.lines += lines
        return sample

    def columns(self) -> ElementSample:
        """Compare columns of the result (of some matrices of a batch)."""
        m, n, _, _ = self.operation.matmul_shape
        sample = ElementSample(ErrorStatistics(elements=0))
        for member, columns in self._places(n, ()):
            lines = [Line(int(column), member) for column in columns]
            tensors = self._of_member(member)
            for rows in self._blocks(m):
                self._compare(sample, lines, tensors, rows, columns, axis=0)
            sample.lines += lines
        return sample

    def _places(self, size: int, also: Sequence[int]) -> Iterator[tuple[int, Indices]]:
        """(matrix of the batch, sorted indices below `size`)."""
        batch = self.operation.matmul_shape.batch
        members = spread(batch, min(batch, _MEMBERS), self.rng)
        wanted: dict[int, set[int]] = {int(member): set() for member in members}
        for member in wanted:
            wanted[member].update(map(int, spread(size, LINES // len(members), self.rng)))
        for line in also:
            wanted.setdefault(line // size, set()).add(line % size)
        for member, indices in sorted(wanted.items()):
            yield member, np.array(sorted(indices), dtype=np.intp)

    def _blocks(self, size: int) -> Iterator[Indices]:
        step = max(1, _BLOCK // max(1, self.operation.matmul_shape.k))
        for start in range(0, size, step):
            yield np.arange(start, min(start + step, size))

    def _of_member(self, member: int) -> dict[str, Array]:
        """The operands of one matrix of the batch; operands shared by the batch are unchanged."""
        is_batched = self.operation.kind is OperationKind.BATCH_MATMUL
        return {
            role: array[member] if is_batched and array.ndim == 3 else array
            for role, array in self.tensors.items()
        }

    def _compare(
        self,
        sample: ElementSample,
        lines: list[Line],
        tensors: Mapping[str, Array],
        rows: Indices,
        columns: Indices,
        *,
        axis: int,
    ) -> None:
        """Compare a block of the result with its reference; `axis` runs along the lines."""
        s = self.operation.signature
        blocks = s.blocks
        kind = s.kind if s.kind is OperationKind.MATMUL_SPLITK else OperationKind.MATMUL
        signature = replace(
            s, kind=kind, lhs_layout=Layout.ROW, rhs_layout=Layout.ROW, result_layout=Layout.ROW,
            scaling=s.scaling if blocks is None else blocks.of_lines,
        )  # fmt: skip
        k = self.operation.matmul_shape.k
        operation = Operation(signature, MatmulShape(rows.size, columns.size, k))
        block = np.ix_(rows, columns)
        of_rows = rows // (1 if blocks is None else blocks.rows)
        of_columns = columns // (1 if blocks is None else blocks.columns)
        cut = {
            "lhs": lambda array: array[rows],
            "rhs": lambda array: array[:, columns],
            "bias": lambda array: array[columns],
            "scale_a": lambda array: array[of_rows] if array.ndim == 2 else array,
            "scale_b": lambda array: array[:, of_columns] if array.ndim == 2 else array,
            "addend": lambda array: array[block],
            "residual": lambda array: array[block],
        }
        inputs = [to_storage(cut[spec.role](tensors[spec.role]), spec) for spec in operation.inputs]
        reference = compute_reference(operation, inputs)
        if self.sizes is not None:
            reference = replace(reference, sizes=self.sizes)
        got = np.ascontiguousarray(tensors["result"][block])
        found = compare(operation, got, reference, declared=self.declared)
        _note_lines(operation, lines, got, reference, found, axis)
        if found.bad is not None:
            row, column = (int(i) for i in np.unravel_index(found.bad.argmax(), found.bad.shape))
            # The matrix's own row, numbered consecutively over the batch.
            line = lines[row if axis == 1 else 0]
            start = line.member * self.operation.matmul_shape.m
            place = line.index if axis == 1 else start + int(rows[row])
            lead = np.unravel_index(place, self.operation.output.shape[:-1])
            index = [*map(int, lead), int(columns[column])]
            found.first_bad = f"{index}{found.first_bad.partition(']')[2]}"
        sample.statistics.elements += found.elements
        sample.statistics.add(found)

    def _pixels(self, shape: Conv2dShape, also: Sequence[int]) -> ElementSample:
        """Compare pixels of a convolution's result with all their channels, as rows of its implicit
        GEMM, from their gathered windows of the image."""
        count = shape.n * shape.p * shape.q
        chosen = {*map(int, spread(count, 2 * LINES, self.rng)), *also}
        pixels = np.array(sorted(chosen), dtype=np.intp)
        image, p, q = np.unravel_index(pixels, (shape.n, shape.p, shape.q))
        y = (p * shape.stride_h - shape.pad_h)[:, np.newaxis, np.newaxis] + np.arange(shape.r)[
            :, np.newaxis
        ]
        x = (q * shape.stride_w - shape.pad_w)[:, np.newaxis, np.newaxis] + np.arange(shape.s)
        y, x = np.broadcast_arrays(y, x)
        inside = (y >= 0) & (y < shape.h) & (x >= 0) & (x < shape.w)
        source = self.tensors["lhs"]
        patches = np.zeros((pixels.size, shape.r, shape.s, shape.c), dtype=source.dtype)
        where = np.nonzero(inside)
        patches[where] = source[image[where[0]], y[where], x[where]]
        tensors = {
            role: array.reshape(-1, array.shape[-1]) if array.ndim > 2 else array
            for role, array in self.tensors.items()
        }
        everything = np.arange(pixels.size)
        tensors["lhs"] = patches.reshape(pixels.size, -1)
        for role in ("residual", "result"):
            if role in tensors:
                tensors[role] = tensors[role][pixels]
        sample = ElementSample(ErrorStatistics(elements=0))
        sample.lines = [Line(int(pixel), 0) for pixel in pixels]
        self._compare(sample, sample.lines, tensors, everything, np.arange(shape.f), axis=1)
        return sample


def spread(size: int, count: int, rng: np.random.Generator) -> Indices:
    """Up to `count` (two or more) different indices below `size`, in order: the first, the last,
    and one at a random place of each of equal strata between."""
    if size <= count:
        return np.arange(size)
    edges = np.linspace(0, size, count + 1).astype(np.intp)
    chosen = rng.integers(edges[:-1], edges[1:])
    chosen[0], chosen[-1] = 0, size - 1
    return chosen.astype(np.intp)


def _note_lines(
    operation: Operation,
    lines: list[Line],
    got: Array,
    reference: Reference,
    found: ErrorStatistics,
    axis: int,
) -> None:
    if operation.signature.lhs.is_integer:
        squared = halves = np.zeros(len(lines))
    else:
        values = to_float64(got)
        with np.errstate(invalid="ignore"):
            error = values - to_float64(reference.value)
        right = np.isfinite(error)
        if found.bad is not None:
            right &= ~found.bad
        ulps: Float64Array = half_ulp(values, operation.signature.result)
        squared = np.square(np.where(right, error, 0.0)).sum(axis=axis)
        halves = np.square(np.where(right, ulps, 0.0)).sum(axis=axis)
    for line, error2, half2 in zip(lines, squared, halves, strict=True):
        line.squared_error += float(error2)
        line.squared_half_ulp += float(half2)
    if found.bad is not None:
        for index in np.flatnonzero(found.bad.any(axis=axis)):
            lines[index].is_bad = True
