"""Compares whole rows and columns, sampled over a result, with their exact reference.

They cost O(K·(M + N)) where the whole reference costs O(MNK). One row is drawn at random from each
of several equal strata, so that every tile and every position within a tile can be drawn; the first
and the last row are always included.

Products of large stored matrices with a few vectors, and norms of their rows and columns.

Verification without a full reference: Freivalds' test and a sample of rows and columns.

Used for shapes whose float64 reference is too expensive. With a vector x of random signs, C·x must
be A·(B·x), which takes O(MN + MK + NK) instead of O(MNK) operations (Freivalds, "Probabilistic
machines can use less running time", IFIP 1977); both sides are computed in float64. The residual r
= (Ĉ - C)·x is, for each row, a sum of its errors with random signs, whatever those errors are:

    P(Σ_v r_v² > s²·(V + 2·√(V·t) + 2·t)) ≤ exp(-t)      over V vectors, if ‖errors of the row‖ ≤ s

(a sum of fixed numbers with random signs is sub-Gaussian, Hoeffding 1963; the tail for V of them is
theorem 1 of Hsu, Kakade, Zhang, "A tail inequality for quadratic forms of subgaussian random
vectors", 2012). t = ln(rows tested / :data:`FALSE_ALARM`), so a result whose errors are within s
fails in one of a million verifications, however many rows it has. Columns are tested by
y·C = (y·A)·B; both tests together locate wrong elements.

The noise s of a row has two parts:

* rounding to the result format: errors of up to half an ulp, spread evenly, so of a mean square of
  half_ulp²/3; the sum over a row deviates from that by at most 6·√(4/45·Σ half_ulp⁴) (the variance
  of a squared uniform error), and no row can have more than Σ half_ulp²;
* accumulation: errors of E·M, where ‖M of row i‖ ≤ ‖a_i‖·‖B‖. E is measured: a sample of whole rows
  and columns is compared with an exact float64 reference anyway, and E is the upper quartile of
  their error norms beyond rounding, over that scale (not the largest, as a few sampled lines may
  be wrong where the bounds are wide); at least √n·u (what random rounding gives: λ = 1 of
  :mod:`gemmetry.numerics.bounds`). :data:`SLACK` times E is granted.

The sample exposes a uniformly inaccurate result, element by element against the usual bounds; the
sums expose a result that is wrong in places. Integer results are exact: r is zero, modulo 2⁶⁴, or
the result is wrong, and there is no false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import (
    F64,
    Conv2dShape,
    DType,
    EpilogueStep,
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
)
from gemmetry.domain.record import Trait
from gemmetry.numerics.bounds import half_ulp, rounding_count, underflow_cost
from gemmetry.numerics.references import (
    OperandSizes,
    Reference,
    compute_reference,
    logical_tensors,
    operand_sizes,
    to_logical,
    to_storage,
)
from gemmetry.numerics.storage import Array, Float64Array, dequantized, to_float64
from gemmetry.verification.comparison import ErrorStatistics, Mask, compare, in_order

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
        return self._lines(1, also)

    def columns(self) -> ElementSample:
        """Compare columns of the result (of some matrices of a batch)."""
        return self._lines(0)

    def _lines(self, axis: int, also: Sequence[int] = ()) -> ElementSample:
        """Compare lines of the result along which `axis` runs, including `also`."""
        m, n, k, batch = self.operation.matmul_shape
        size, length = (m, n) if axis else (n, m)
        members = spread(batch, min(batch, _MEMBERS), self.rng)
        wanted: dict[int, set[int]] = {int(member): set() for member in members}
        for member in wanted:
            wanted[member].update(map(int, spread(size, LINES // len(members), self.rng)))
        for line in also:
            wanted.setdefault(line // size, set()).add(line % size)
        sample, step = ElementSample(ErrorStatistics(elements=0)), max(1, _BLOCK // max(1, k))
        for member, chosen in sorted(wanted.items()):
            indices = np.array(sorted(chosen), dtype=np.intp)
            lines = [Line(int(index) + axis * member * m, member) for index in indices]
            tensors = _of_member(self.operation, self.tensors, member)
            for start in range(0, length, step):
                block = np.arange(start, min(start + step, length))
                places = (indices, block) if axis else (block, indices)
                self._compare(sample, lines, tensors, *places, axis=axis)
            sample.lines += lines
        return sample

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
        self._note_lines(lines, got, reference, found, axis)
        if found.bad is not None:
            row, column = np.unravel_index(found.bad.argmax(), found.bad.shape)
            # The matrix's own row, numbered consecutively over the batch.
            place = lines[0].member * self.operation.matmul_shape.m + int(rows[row])
            if axis == 1:
                place = lines[row].index
            lead = np.unravel_index(place, self.operation.output.shape[:-1])
            index = [*map(int, lead), int(columns[column])]
            found.first_bad = f"{index}{found.first_bad.partition(']')[2]}"
        sample.statistics.elements += found.elements
        sample.statistics.add(found)

    def _note_lines(
        self, lines: list[Line], got: Array, reference: Reference, found: ErrorStatistics, axis: int
    ) -> None:
        signature = self.operation.signature
        right = np.ones(got.shape, np.bool_) if found.bad is None else ~found.bad
        for index in np.flatnonzero(~right.all(axis=axis)):
            lines[index].is_bad = True
        if signature.lhs.is_integer:
            return
        values = to_float64(got)
        with np.errstate(invalid="ignore"):
            error = values - to_float64(reference.value)
        right = right & np.isfinite(error)
        parts = (error, half_ulp(values, signature.result))
        errors, ulps = (np.square(np.where(right, part, 0.0)).sum(axis=axis) for part in parts)
        for line, more, ulp in zip(lines, errors, ulps, strict=True):
            line.squared_error += float(more)
            line.squared_half_ulp += float(ulp)

    def _pixels(self, shape: Conv2dShape, also: Sequence[int]) -> ElementSample:
        """Compare pixels of a convolution's result with all their channels, as rows of its implicit
        GEMM, from their gathered windows of the image."""
        count = shape.n * shape.p * shape.q
        chosen = {*map(int, spread(count, 2 * LINES, self.rng)), *also}
        pixels = np.array(sorted(chosen), dtype=np.intp)
        image, p, q = np.unravel_index(pixels, (shape.n, shape.p, shape.q))
        top, left = p * shape.stride_h - shape.pad_h, q * shape.stride_w - shape.pad_w
        y = top[:, np.newaxis, np.newaxis] + np.arange(shape.r)[:, np.newaxis]
        x = left[:, np.newaxis, np.newaxis] + np.arange(shape.s)
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
        tensors["lhs"] = patches.reshape(pixels.size, -1)
        for role in ("residual", "result"):
            if role in tensors:
                tensors[role] = tensors[role][pixels]
        lines = [Line(int(pixel), 0) for pixel in pixels]
        sample = ElementSample(ErrorStatistics(elements=0), lines)
        rows, channels = np.arange(pixels.size), np.arange(shape.f)
        self._compare(sample, lines, tensors, rows, channels, axis=1)
        return sample


def _of_member(operation: Operation, tensors: Mapping[str, Array], member: int) -> dict[str, Array]:
    """The operands of one matrix of the batch; operands shared by the batch are unchanged."""
    has_own = 3 if operation.kind is OperationKind.BATCH_MATMUL else None
    pairs = tensors.items()
    return {role: array[member] if array.ndim == has_own else array for role, array in pairs}


def spread(size: int, count: int, rng: np.random.Generator) -> Indices:
    """Up to `count` (two or more) different indices below `size`, in order: the first, the last,
    and one at a random place of each of equal strata between."""
    if size <= count:
        return np.arange(size)
    edges = np.linspace(0, size, count + 1).astype(np.intp)
    chosen = rng.integers(edges[:-1], edges[1:])
    chosen[0], chosen[-1] = 0, size - 1
    return chosen.astype(np.intp)


_PIECE = 1 << 19
"""Elements widened at a time by one thread: 4 MiB."""

Vectors = npt.NDArray[Any]
"""One vector per column; float64, or int64 for arithmetic modulo 2⁶⁴."""


@dataclass
class Scan:
    """Results of one pass over a matrix; None where they were not requested."""

    right: Any = None
    """matrix @ x, (rows, vectors)."""
    left: Any = None
    """matrixᵀ @ y, (columns, vectors)."""
    row_squares: Any = 0.0
    """Sum of squares along each row."""
    column_squares: Any = 0.0
    row_fourths: Any = 0.0
    """Sum of fourth powers along each row."""
    column_fourths: Any = 0.0

    @property
    def flipped(self) -> Scan:
        """The scan of the transposed matrix."""
        swapped = self.left, self.right, self.column_squares, self.row_squares
        return Scan(*swapped, self.column_fourths, self.row_fourths)


def scan(
    matrix: Array,
    *,
    x: Vectors | None = None,
    y: Vectors | None = None,
    squares: bool = False,
    half_ulps_of: DType | None = None,
    modulo: bool = False,
) -> Scan:
    """One pass over `matrix` (rows, columns), block by block in the order of its memory.

    Args:
        x: (columns, vectors), to multiply from the right. y: (rows, vectors), from the left.
        squares: whether to compute sums of squares.
        half_ulps_of: compute the sums of squares and fourth powers of half an ulp of each element
            in this format, instead of the elements.
        modulo: compute in int64, which wraps around, instead of float64.
    """
    if matrix.strides[0] < matrix.strides[1] and matrix.shape[0] > 1 and matrix.shape[1] > 1:
        return scan(
            matrix.T, x=y, y=x, squares=squares, half_ulps_of=half_ulps_of, modulo=modulo
        ).flipped
    height, width = matrix.shape
    step = max(1, _PIECE // max(1, width))

    def one(start: int) -> Scan:
        rows = slice(start, start + step)
        part, wide = Scan(), matrix[rows].astype(np.int64) if modulo else to_float64(matrix[rows])
        if x is not None:
            part.right = wide @ x
        if y is not None:
            part.left = wide.T @ y[rows]
        if half_ulps_of is not None:
            wide = half_ulp(np.ascontiguousarray(wide), half_ulps_of)
        if squares or half_ulps_of is not None:
            powers = np.square(wide)
            part.row_squares, part.column_squares = powers.sum(axis=1), powers.sum(axis=0)
            if half_ulps_of is not None:
                np.square(powers, out=powers)
                part.row_fourths, part.column_fourths = powers.sum(axis=1), powers.sum(axis=0)
        return part

    parts = list(in_order(one, range(0, height, step)))
    whole = Scan(
        left=None if y is None else sum(part.left for part in parts),
        column_squares=sum(part.column_squares for part in parts),
        column_fourths=sum(part.column_fourths for part in parts),
    )
    if x is not None:
        whole.right = np.concatenate([part.right for part in parts])
    if squares or half_ulps_of is not None:
        whole.row_squares = np.concatenate([part.row_squares for part in parts])
        if half_ulps_of is not None:
            whole.row_fourths = np.concatenate([part.row_fourths for part in parts])
    return whole


FALSE_ALARM = 1e-6
"""Probability that a correct result fails, over all rows, columns and vectors of one
verification."""

SLACK = 2.0
"""Factor over the accumulation error measured in the sample that all rows are allowed."""


@dataclass(frozen=True)
class FreivaldsResult:
    """Result of the test and the sample."""

    bad_rows: tuple[int, ...]
    """Rows of the result, reshaped to (-1, last axis), whose sums or samples are wrong."""
    bad_columns: tuple[int, ...]
    """Columns of the result (of any matrix of a batch) whose sums or samples are wrong."""
    statistics: ErrorStatistics
    """Error statistics of the sampled elements, without a mask."""
    inapplicable: str = ""
    """Reason why the sums do not apply, so that only the sample was judged; "" where they do."""
    largest_deviation: float = 0.0
    """Largest √(Σ_v r_v² / V) / s over rows and columns: below about 2 for a right result."""
    shape: tuple[int, int] = (0, 0)
    """Shape of the result reshaped to (-1, last axis)."""

    @property
    def detail(self) -> str:
        """Fault and its place, or what was checked; one line."""
        parts, statistics = [], self.statistics
        if statistics.bad_count:
            parts.append(f"{statistics.bad_count} of {statistics.elements} sampled elements")
        lines = zip(("row", "column"), (self.bad_rows, self.bad_columns), self.shape, strict=True)
        parts += [
            f"{len(bad)} of {size} {name}s ({_ranges(bad)})" for name, bad, size in lines if bad
        ]
        deviation = self.largest_deviation
        if parts:
            sums = f"; sums deviate by up to {deviation:.3g} times their noise" if deviation else ""
            return "wrong: " + ", ".join(parts) + sums
        how = f"sums within {deviation:.2g} of their noise"
        if self.inapplicable:
            how = f"only a sample, as {self.inapplicable}"
        return f"{statistics.elements} sampled elements are correct; {how}"

    @property
    def is_right(self) -> bool:
        return not (self.bad_rows or self.bad_columns or self.statistics.bad_count)

    @property
    def mask(self) -> Mask:
        """Mask of the elements that may be wrong, as (-1, last axis): the crossings of bad rows and
        columns (all of a row where no column is known to be bad, and the reverse)."""
        mask = np.zeros(self.shape, dtype=np.bool_)
        if self.bad_rows or self.bad_columns:
            bad = (self.bad_rows, self.bad_columns)
            lines = [found or range(size) for found, size in zip(bad, self.shape, strict=True)]
            mask[np.ix_(*lines)] = True
        return mask


def freivalds(
    operation: Operation,
    inputs: Sequence[Array],
    output: Array,
    *,
    seed: int,
    vectors: int = 4,
    declared: Collection[Trait] = (),
) -> FreivaldsResult:
    """Verify `output` without a full reference.

    Time grows with MN + MK + NK (A and B are read twice, C once) plus a sample of 32 rows and 32
    columns, 64·K·(M + N) multiply-adds. The sums need an epilogue that only adds: after relu and
    gelu, for convolutions and where the result overflows, only the sample decides (for
    convolutions, 64 pixels with all their channels).

    Args:
        inputs: host arrays of ``operation.inputs``. output: host array in storage shape.
        seed: seed of the signs and of the sampled places.
        vectors: V.
        declared: the executable's declarations about its arithmetic, which apply to the sample.
    """
    width = operation.output.shape[-1]
    shape = (operation.output.elements // max(1, width), width)
    overflowing = _overflowing_rows(operation, output)
    sampler = ElementSampler(operation, inputs, output, seed=seed, declared=declared)
    rows = sampler.rows(also=[int(row) for row in overflowing[:LINES]])
    samples = [rows]
    if not isinstance(operation.shape, Conv2dShape):
        samples.append(sampler.columns())
    statistics = ErrorStatistics(elements=sum(sample.statistics.elements for sample in samples))
    for sample in samples:
        statistics.add(sample.statistics)
    reason, deviation = _inapplicable(operation, overflowing), 0.0
    bad: list[set[int]] = [*(sample.bad for sample in samples), set()][:2]
    if not reason:
        deviation = _ProjectedSums(sampler, seed, vectors).judge(samples, *bad)
    bad_rows, bad_columns = (tuple(sorted(found)) for found in bad)
    return FreivaldsResult(bad_rows, bad_columns, statistics, reason, deviation, shape)


def _overflowing_rows(operation: Operation, output: Array) -> Indices:
    """Rows (as (-1, last axis)) with elements that are not finite, or that fp8 may have clipped:
    sums cannot verify them."""
    result = operation.signature.result
    if result.is_integer:
        return np.zeros(0, np.intp)
    logical = to_logical(output, operation.output)
    rows = logical.reshape(-1, logical.shape[-1])
    found = ~np.isfinite(rows).all(axis=1)
    if result.is_fp8:
        found |= (np.abs(to_float64(rows)) == result.maximum).any(axis=1)
    return np.flatnonzero(found)


def _inapplicable(operation: Operation, overflowing: Indices) -> str:
    if isinstance(operation.shape, Conv2dShape):
        return "sums over the channels of a convolution are not tested"
    for step in (EpilogueStep.RELU, EpilogueStep.GELU):
        if step in operation.signature.epilogue:
            return f"after {step} the sum over a row has no meaning"
    if overflowing.size:
        return f"{overflowing.size} rows overflow, of which the first {LINES} are in the sample"
    return ""


def _ranges(indices: Sequence[int]) -> str:
    """``3, 8–15, 40`` of ascending numbers; the first few."""
    ordered = np.array(indices)
    runs = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    texts = [f"{run[0]}" if run.size == 1 else f"{run[0]}–{run[-1]}" for run in runs[:4]]
    return ", ".join([*texts, "…"] if len(runs) > 4 else texts)


@dataclass
class _Side:
    """Sums of one matrix's product over its rows, or over its columns by the transposed product."""

    residual: Float64Array
    """(rows, vectors)."""
    magnitude: Float64Array
    """Upper bounds of ‖M of each row‖."""
    rounding: Scan
    """Scan of the half ulps of the result."""


class _ProjectedSums:
    """Freivalds' test of a (batch) product, over rows and over columns."""

    def __init__(self, sampler: ElementSampler, seed: int, vectors: int) -> None:
        self.operation, self.tensors = sampler.operation, sampler.tensors
        self.vectors = vectors
        self.is_stochastic = Trait.STOCHASTIC_ROUNDING in sampler.declared
        self.rng = np.random.default_rng([seed % 2**64, 0xF4E1])
        m, n, _, batch = self.operation.matmul_shape
        self.is_integer = self.operation.signature.lhs.is_integer
        self.modulo = self.is_integer and self.wraps_around()
        self.limit = largest_right_deviation(vectors, batch * (m + n))

    def wraps_around(self) -> bool:
        """Whether sums of s8 products or s32 results may leave the integers that float64 holds, so
        that int64 arithmetic modulo 2⁶⁴ is needed, which is also exact, but slower."""
        m, n, k, _ = self.operation.matmul_shape
        return max(m, n) * max(128 * 128 * k, 2**31) >= 2**53

    def judge(
        self, samples: Sequence[ElementSample], bad_rows: set[int], bad_columns: set[int]
    ) -> float:
        """Add the lines whose sums are wrong; returns the largest deviation."""
        m, _, _, batch = self.operation.matmul_shape
        with np.errstate(over="ignore"):
            sides = [self._sides(self._of_member(member)) for member in range(batch)]
        seen = self._accumulation_errors([side[0] for side in sides], samples[0].lines, m)
        seen += self._accumulation_errors([side[1] for side in sides], samples[1].lines, 0)
        unit = self.operation.signature.accumulator.unit_roundoff
        least = math.sqrt(rounding_count(self.operation)) * unit
        excess = max(least, float(np.quantile(seen, 0.75)) if seen else 0.0)
        largest = 0.0
        for member, (across, down) in enumerate(sides):
            for side, bad, offset in ((across, bad_rows, member * m), (down, bad_columns, 0)):
                wrong, deviation = self._wrong(side, excess)
                bad.update(int(line) + offset for line in wrong)
                largest = max(largest, deviation)
        return largest

    def _of_member(self, member: int) -> dict[str, Array]:
        """The operands of one matrix of the batch; operands shared by the batch as one row. A and B
        contain the factors of their blocks, in 8 bytes for each element."""
        whole = _of_member(self.operation, self.tensors, member)
        parts: dict[str, Array] = {role: np.atleast_2d(array) for role, array in whole.items()}
        if self.operation.signature.blocks is not None:
            parts["lhs"], parts["rhs"] = dequantized(self.operation, parts)
            del parts["scale_a"], parts["scale_b"]
        return parts

    def _signs(self, count: int) -> Vectors:
        signs = self.rng.choice(np.array([-1, 1]), (count, self.vectors))
        return signs.astype(np.int64 if self.modulo else np.float64)

    def _sides(self, parts: Mapping[str, Array]) -> tuple[_Side, _Side]:
        """The sums over rows and over columns of one matrix's product."""
        s = self.operation.signature
        m, n, _, _ = self.operation.matmul_shape
        x, y = self._signs(n), self._signs(m)
        of_row = s.alpha * _factor(parts, "scale_a")
        of_column = _factor(parts, "scale_b").T
        if self.is_integer:
            of_row, of_column = np.ones((1, 1), x.dtype), np.ones((1, 1), x.dtype)
        squares = not self.is_integer
        rhs = scan(parts["rhs"], x=of_column * x, squares=squares, modulo=self.modulo)
        lhs = scan(parts["lhs"], y=of_row * y, squares=squares, modulo=self.modulo)
        rows = of_row * scan(parts["lhs"], x=rhs.right, modulo=self.modulo).right
        columns = of_column * scan(parts["rhs"], y=lhs.left, modulo=self.modulo).left
        row_norms = np.abs(of_row[:, 0]) * np.sqrt(lhs.row_squares)
        column_norms = np.abs(of_column[:, 0]) * np.sqrt(rhs.column_squares)
        row_size = row_norms * np.linalg.norm(column_norms)
        column_size = column_norms * np.linalg.norm(row_norms)
        for role in ("addend", "bias", "residual"):
            if role in parts:
                added = np.broadcast_to(parts[role], (m, n))
                weight = s.beta if role == "addend" else 1
                part = scan(added, x=x, y=y, squares=squares, modulo=self.modulo)
                rows = rows + weight * part.right
                columns = columns + weight * part.left
                row_size = row_size + abs(weight) * np.sqrt(part.row_squares)
                column_size = column_size + abs(weight) * np.sqrt(part.column_squares)
        half_ulps_of = None if self.is_integer else s.result
        result = scan(parts["result"], x=x, y=y, half_ulps_of=half_ulps_of, modulo=self.modulo)
        return (
            _Side(result.right - rows, row_size, result),
            _Side(result.left - columns, column_size, result.flipped),
        )

    def _accumulation_errors(
        self, sides: Sequence[_Side], lines: Sequence[Line], height: int
    ) -> list[float]:
        """The error norm beyond rounding, over ‖M‖, of each of the sampled lines."""
        if self.is_integer:
            return []
        found = []
        for line in lines:
            scale = float(sides[line.member].magnitude[line.index - line.member * height])
            beyond = max(0.0, line.squared_error - line.squared_half_ulp / 3)
            found.append(math.sqrt(beyond) / scale if scale > 0 else 0.0)
        return found

    def _wrong(self, side: _Side, error: float) -> tuple[Indices, float]:
        """Lines whose sums are wrong, and the largest deviation in units of the noise."""
        if self.is_integer:
            wrong = np.flatnonzero((side.residual != 0).any(axis=1))
            return wrong, math.inf if wrong.size else 0.0
        energy = np.square(side.residual).mean(axis=1) / self._squared_noise(side, error)
        deviation = np.sqrt(energy)
        wrong = np.flatnonzero(~(deviation <= self.limit))
        return wrong, float(deviation.max(initial=0.0))

    def _squared_noise(self, side: _Side, error: float) -> Float64Array:
        m, n, k, _ = self.operation.matmul_shape
        unit = self.operation.signature.result.unit_roundoff
        most = side.rounding.row_squares
        usual = most / 3 + 6 * np.sqrt(side.rounding.row_fourths * (4 / 45))
        rounding: Float64Array = np.minimum(usual, most)
        if self.is_stochastic:
            rounding = 4 * rounding  # A whole ulp.
        accumulation = SLACK * error * side.magnitude
        # The float64 sums themselves: six deviations of √n·2⁻⁵³; |c| is below 2·half_ulp/u.
        sizes = side.magnitude + 2 / unit * np.sqrt(most)
        evaluation = 6 * math.sqrt(m + n + k) * F64.unit_roundoff * sizes
        lost = math.sqrt(max(m, n)) * underflow_cost(self.operation, flushed=True)
        noise = np.square(rounding**0.5 + evaluation + lost) + np.square(accumulation)
        return cast(Float64Array, np.maximum(noise, np.finfo(np.float64).tiny))  # Never zero.


def largest_right_deviation(vectors: int, lines: float) -> float:
    """The value that √(Σ_v r_v² / V) / s exceeds with a probability of at most :data:`FALSE_ALARM`
    in any of `lines` rows and columns: 4.1 for 4 vectors and 4096 lines."""
    tail = math.log(lines / FALSE_ALARM)
    return math.sqrt(1 + 2 * math.sqrt(tail / vectors) + 2 * tail / vectors)


def _factor(parts: Mapping[str, Array], role: str) -> Float64Array:
    """Scale factors as a matrix that broadcasts; ones where there are none."""
    return to_float64(parts[role]) if role in parts else np.ones((1, 1))
