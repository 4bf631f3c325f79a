"""Seeded inputs for operations.

Each tensor has its own random stream, seeded by (seed, role, shape) alone, so an operation gets the
same bits in every process, regardless of what was drawn before. The streams are numpy's PCG64 with
SeedSequence (whose outputs numpy's NEP 19 keeps stable); a test pins their first values.

==================  ==========================================  ============================
distribution        floating-point                              integers (s8; s32 addends)
==================  ==========================================  ============================
``offset_uniform``  [0.1, 1.1)                                  ±[1, q]
``uniform``         [0, 1)                                      [0, q]
``uniform_signed``  (-1, 1), no zeros                           ±[1, q]
``normal``          mean 0, standard deviation 1                normal of deviation q/4, ±q
``integers``        ±[1, r], every partial sum exact            ±[1, r]
``zeros``           0                                           0
==================  ==========================================  ============================

q is 127, or less where K products would overflow s32; r is :func:`exact_integer_limit`. The
default, ``offset_uniform``, is the one that the grid tracing document requires. Values are drawn in
float32 (float64 for f64) and rounded to the format, so bf16's largest of [0.1, 1.1) is 1.1015625.

Changes of inputs in a few places, and their effect on the result.

A line of A (a row, or an image of a convolution) affects one line of the result only, and so does a
column of B (a filter). If one line changes, the new reference therefore differs from the old one in
one line, which is a product with a single row or column and costs 1/M or 1/N of the whole. A result
can thus be checked on inputs that the kernel has never seen, at almost no cost.

Draws random changes of inputs: their positions and new contents.

Writes changes of inputs to a device's buffers, and plausible numbers to its outputs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from typing import Any, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from gemmetry.domain.contracts import Buffer, Device, EditableDevice
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.operation import (
    E2M1,
    E8M0,
    F64,
    Conv2dShape,
    DType,
    Layout,
    Operation,
    OperationKind,
    TensorSpec,
)
from gemmetry.domain.settings import DISTRIBUTIONS
from gemmetry.domain.tables import grouped
from gemmetry.numerics.references import (
    Matmul,
    Reference,
    Scalar,
    compute_reference,
    in_order,
    to_logical,
    to_storage,
)
from gemmetry.numerics.storage import (
    Array,
    Float64Array,
    Floats,
    as_bits,
    count_zeros,
    numpy_dtype,
    quantize,
    same_bytes,
    smallest_normal,
    smallest_subnormal,
    to_float64,
)

GENERATOR_VERSION = 1
"""Incremented whenever the same arguments give other bits; part of a cached reference's key."""

_ROLES = ("lhs", "rhs", "addend", "scale_a", "scale_b", "bias", "residual")
_SCALE_RANGE = (-2, 1)
"""Smallest and largest power of two of a scale factor."""

_CHUNK = 1 << 22
"""Elements drawn at a time: bounds the float32 intermediate of a thread at 16 MiB."""

_FEWEST_FOR_THREADS = 1 << 18
"""Fewer elements are drawn by the calling thread: they take about a millisecond, and starting
threads takes a tenth of that."""

_EVEN_DISTRIBUTIONS = frozenset({"offset_uniform", "uniform", "uniform_signed"})
"""Distributions of floats whose numbers all take the same part of the stream: 64 bits for two in
float32, or for one in float64. Normal numbers and integers may reject what they draw."""


def make_inputs(operation: Operation, *, distribution: str, seed: int) -> tuple[Array, ...]:
    """Host arrays of ``operation.inputs``, in that order, each C-contiguous in storage shape.

    The same (operation, distribution, seed) gives bit-identical arrays everywhere. Scale factors
    are powers of two between 1/4 and 2, whatever the distribution.

    Raises:
        UnknownNameError: there is no such distribution.
    """
    if distribution not in DISTRIBUTIONS:
        raise UnknownNameError("distribution", distribution, DISTRIBUTIONS)
    limit = integer_limit(operation, distribution)
    arrays: list[Array] = []
    parts, size = [], 0
    for spec in operation.inputs:
        entropy = [seed % 2**64, _ROLES.index(spec.role), *spec.shape]
        if spec.role in _SINGLE:
            arrays.append(_scales(_stream(entropy, 0), operation, spec))
            continue
        arrays.append(np.empty(spec.storage_shape, dtype=numpy_dtype(spec.dtype)))
        flat = arrays[-1].reshape(-1)
        # Pieces where each number takes the same part of the stream, otherwise the whole tensor.
        is_even = not spec.dtype.is_integer and distribution in _EVEN_DISTRIBUTIONS
        step, per_draw = _CHUNK if is_even else max(1, flat.size), 1 if spec.dtype is F64 else 2
        for start in range(0, flat.size, step):
            rng, piece = _stream(entropy, start // per_draw), flat[start : start + step]
            parts.append(partial(_fill, rng, piece, spec.dtype, distribution, limit))
            size += piece.size
    run = in_order if size > _FEWEST_FOR_THREADS else map
    deque(run(lambda part: part(), parts), maxlen=0)
    return tuple(arrays)


def zero_share(arrays: Iterable[Array]) -> float:
    """The share of zeros among all elements of the quantised `arrays`; 0 if there are no
    elements."""
    zeros = total = 0
    for array in arrays:
        zeros += count_zeros(array)
        total += array.size
    return zeros / total if total else 0.0


def integer_limit(operation: Operation, distribution: str) -> int:
    """The largest magnitude of integer-valued operands under `distribution` (q or r above)."""
    if distribution == "integers":
        return max(1, exact_integer_limit(operation))
    # Headroom of 3·127 leaves room for addend, bias and residual.
    products = (2**31 - 1 - 3 * 127) // operation.matmul_shape.k
    return max(1, min(127, math.isqrt(products)))


def exact_integer_limit(operation: Operation) -> int:
    """The largest r such that operands drawn from ±[1, r] have exact sums in any order; 0 if even r
    = 1 does not.

    With p bits in the accumulator every partial sum is at most K·r² ≤ 2ᵖ. Where that does not even
    allow r = 1, random signs help: partial sums of K independent ±1 are a random walk and stay
    below 8√K except with probability 2·exp(-32) each (Hoeffding's inequality), so r = 1 is used
    while 8√K ≤ 2ᵖ. r also stays within the integers that the input format represents exactly (2ᵖ of
    the format), and so small that results six standard deviations large, |alpha|·6√K·(r + 1)(2r +
    1)/6 (the fraction is the mean square of ±[1, r]), stay finite in the result format. fp8
    products are limited to 2¹³, because Hopper's fp8 accumulator keeps 14 bits (PyTorch blog, "Some
    Matrix Multiplication Engines Are Not As Accurate As We Thought").

    Products in blocks differ by up to 2⁶ in their factors, the sums of one block do not: kernels
    promote fp8 sums at the end of each block, so that the limit of 2¹³ applies to one block of K.
    """
    s = operation.signature
    k = operation.matmul_shape.k
    if s.lhs.is_integer:
        return integer_limit(operation, "offset_uniform")
    bits = s.accumulator.significand_bits
    if s.lhs.is_fp8 or s.rhs.is_fp8:
        bits = min(bits, 13)
    if s.blocks is not None:
        span = 2 * (_SCALE_RANGE[1] - _SCALE_RANGE[0])
        wide = s.accumulator.significand_bits - span
        limit = math.isqrt(min(2**wide // k, 2**bits // min(k, s.blocks.depth)))
    else:
        limit = math.isqrt(2**bits // k)
    if limit == 0 and s.blocks is None and 8 * math.sqrt(k) <= 2**bits:
        limit = 1
    limit = min(limit, 2**s.lhs.significand_bits, 2**s.rhs.significand_bits)
    room = s.result.maximum / math.sqrt(k) / max(1.0, abs(s.alpha))
    if limit > 1 and (limit + 1) * (2 * limit + 1) > room:
        # The positive root of 2r² + 3r + 1 = room.
        limit = max(1, int((math.sqrt(1 + 8 * room) - 3) / 4))
    return limit


def _stream(entropy: Sequence[int], skipped: int) -> np.random.Generator:
    """A tensor's stream after `skipped` numbers of 64 bits."""
    bits = np.random.PCG64(np.random.SeedSequence(entropy))
    return np.random.Generator(bits.advance(skipped) if skipped else bits)


def _fill(
    rng: np.random.Generator, flat: Array, dtype: DType, distribution: str, limit: int
) -> None:
    """Fill a part of a tensor with what comes next in its stream."""
    draw = _draw_integers if dtype.is_integer else _draw_floats
    for start in range(0, flat.size, _CHUNK):
        piece = flat[start : start + _CHUNK]
        if distribution == "zeros":
            piece[...] = 0
        else:
            piece[...] = quantize(draw(rng, piece.size, dtype, distribution, limit), dtype)


def _draw_floats(
    rng: np.random.Generator, count: int, dtype: DType, distribution: str, limit: int
) -> Floats:
    drawn = np.float64 if dtype is F64 else np.float32
    if distribution == "integers":
        return _signed_integers(rng, count, limit).astype(drawn)
    if distribution == "normal":
        return _without_zeros(rng.standard_normal(count, dtype=drawn), dtype)
    values = rng.random(count, dtype=drawn)
    if distribution == "offset_uniform":
        values += drawn(0.1)
    elif distribution == "uniform_signed":
        # Odd multiples of the generator's step: symmetric, inside (-1, 1) and never zero.
        values *= drawn(2)
        values -= drawn(1 - 2.0 ** (-53 if dtype is F64 else -24))
        values = _without_zeros(values, dtype)
    return values


def _without_zeros(values: Floats, dtype: DType) -> Floats:
    """Raise magnitudes below the format's smallest normal number to that number, so that none
    rounds to zero; e2m1, whose smallest normal number is 1, keeps its 0.5."""
    least = smallest_subnormal(dtype) if dtype is E2M1 else smallest_normal(dtype)
    return cast(Floats, np.copysign(np.maximum(np.abs(values), least), values))


def _draw_integers(
    rng: np.random.Generator, count: int, _: DType, distribution: str, limit: int
) -> Array:
    if distribution == "uniform":
        return rng.integers(0, limit, count, dtype=np.int8, endpoint=True)
    if distribution == "normal":
        values = np.rint(rng.standard_normal(count, dtype=np.float32) * (limit / 4))
        return np.asarray(np.clip(values, -limit, limit))
    return _signed_integers(rng, count, limit)


def _signed_integers(rng: np.random.Generator, count: int, limit: int) -> Array:
    """int32 in ±[1, limit], uniform, no zeros."""
    values = rng.integers(-limit, limit, count, dtype=np.int32)
    values += values >= 0
    return cast(Array, values)


def _scales(rng: np.random.Generator, operation: Operation, spec: TensorSpec) -> Array:
    exponents = rng.integers(*_SCALE_RANGE, spec.storage_shape, dtype=np.int32, endpoint=True)
    if spec.role == "scale_b" and operation.signature.result.is_fp8:
        # Sums of K products of size one must fit into a format whose maximum is 240 or 448.
        exponents -= max(0, math.ceil(math.log2(operation.matmul_shape.k)) - 7)
    return quantize(np.ldexp(np.float32(1), exponents).astype(np.float32), spec.dtype)


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
    """Kind of change of one or two lines. Each preserves a property that a cache might compare."""

    ONE_ELEMENT = "changed in one element"
    """One number changes its sign; all other numbers and all magnitudes stay the same."""
    LAST_ELEMENT = "changed in its last element"
    """Change of the last number in memory, which a checksum with a stride may skip."""
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
    """Index into ``operation.inputs``: 0 for A, 1 for B."""
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
    before = inputs[change.place]
    if change.lines:
        before = take_lines(operation, to_logical(before, operation.inputs[change.place]), change)
    return edits(operation, replace(change, contents=before))


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
    row, column = ("n", "f") if isinstance(operation.shape, Conv2dShape) else ("m", "n")
    size, side, followers = (
        (column, "columns", _BY_COLUMN) if axis == -1 else (row, "rows", _BY_ROW)
    )
    signature, per_factor = operation.signature, 1
    if signature.blocks is not None:
        # A factor that several lines share becomes one of each line.
        per_factor = getattr(signature.blocks, side)
        single: dict[str, Any] = {side: 1}
        signature = replace(signature, scaling=replace(signature.blocks, **single))
    part = Operation(signature, operation.shape._replace(**{size: len(lines)}))
    taken = list(inputs)
    for i, (spec, small) in enumerate(zip(operation.inputs, part.inputs, strict=True)):
        is_shared = spec.role in _SINGLE and per_factor > 1
        if i == place:
            contents = np.concatenate([change.contents for change in changes], axis)
            taken[i] = to_storage(contents, small)
        elif spec.role in followers and (is_shared or _has_lines(spec, operation.output, axis)):
            own = [line // per_factor for line in lines] if is_shared else lines
            taken[i] = to_storage(lines_of(to_logical(inputs[i], spec), own, axis), small)
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
    lines = reference_of_lines(operation, inputs, reference, change, matmul=matmul)
    return reference_with_lines(operation, reference, change, lines)


_FEW = 8
"""One in so many products of a sum may change for the rest of the sum to be taken as known."""
_LEAST_LEFT = 2.0**-10
"""The least share of a magnitude that is left where a change subtracts from it: more cancellation
would magnify what the reference rounded."""


def reference_of_lines(
    operation: Operation,
    inputs: Sequence[Array],
    reference: Reference,
    change: InputChange,
    *,
    matmul: Matmul | None = None,
) -> Reference:
    """The reference of the result's lines that `change` affects; as of :func:`changed_reference`.

    A product of whole lines reads the other operand as a whole. That is not needed for known lines
    with another sign, in another order, or with a few other elements.
    """
    if (known := _known_lines(operation, inputs, reference, change)) is not None:
        return known
    part, taken = part_with_lines(operation, inputs, [change])
    return replace(compute_reference(part, taken, matmul=matmul), sizes=reference.sizes)


def _known_lines(
    operation: Operation, inputs: Sequence[Array], reference: Reference, change: InputChange
) -> Reference | None:
    """Changed lines of `reference`; None where deriving them is impossible or not exact enough."""
    s, place = operation.signature, change.place
    has_wide_sum = s.lhs.is_integer or s.accumulator.significand_bits > 24
    if len(operation.inputs) > 2 or s.beta or s.epilogue or has_wide_sum or not change.lines:
        return None
    if operation.kind not in (OperationKind.MATMUL, OperationKind.BATCH_MATMUL):
        return None
    whole = [to_logical(array, spec) for array, spec in zip(inputs, operation.inputs, strict=True)]
    axis = line_axis(operation, place)
    old, new = take_lines(operation, whole[place], change), change.contents
    known = reference.of(lambda array: take_lines(operation, array, change))
    if not np.isfinite(known.magnitude).all():
        return None
    if same_bytes(new, negative(old)):
        return replace(known, value=np.negative(to_float64(known.value)))
    if len(change.lines) == 2 and same_bytes(new, np.flip(old, axis)):
        return known.of(lambda array: np.flip(array, axis))
    # The axis of the sum is that of the other lines.
    along = -1 if axis == -2 else -2
    is_other = (as_bits(old) != as_bits(new)).reshape(old.shape)
    differs = np.moveaxis(is_other, along, 0).reshape(old.shape[along], -1)
    places = [int(place) for place in np.flatnonzero(differs.any(axis=1))]
    if len(places) * _FEW > len(differs):
        return None
    was, now = (to_float64(lines_of(array, places, along)) for array in (old, new))
    other = to_float64(lines_of(whole[1 - place], places, axis))
    scale = abs(s.alpha)

    def product(lines: Float64Array, other: Float64Array) -> Float64Array:
        return lines @ other if place == 0 else other @ lines

    value = to_float64(known.value) + s.alpha * product(now - was, other)
    magnitude = known.magnitude + scale * product(np.abs(now) - np.abs(was), np.abs(other))
    if (magnitude < known.magnitude * _LEAST_LEFT).any() or not np.isfinite(magnitude).all():
        return None
    return replace(known, value=value, magnitude=magnitude)


def reference_with_lines(
    operation: Operation, reference: Reference, change: InputChange, lines: Reference
) -> Reference:
    """A copy of `reference` with `lines` where `change` affects it."""
    changed: dict[str, Any] = {
        name: with_lines(operation, getattr(reference, name), change, getattr(lines, name))
        for name in ("value", "magnitude", "extra_rounding")
        if getattr(reference, name) is not None and getattr(lines, name) is not None
    }
    return replace(reference, **changed)


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
    is_turned = spec.layout is Layout.COLUMN and axis in (-1, -2)
    found = []
    for number, line in enumerate(lines):
        index = [slice(None)] * len(spec.shape)
        index[-3 - axis if is_turned else axis] = slice(line, line + 1)
        part = contents[_along(axis, slice(number, number + 1))]
        found.append(Edit(place, tuple(index), to_storage(part, spec)))
    return found


_TRIES = 8
"""Number of places examined to find one whose change is visible, such as a large number."""

_TRIES_OF_ONE = 32
"""Attempts to find a place at a suitable distance: one in five distances is coprime to
:data:`_STRIDES`."""

_STRIDES = 2 * 3 * 5 * 7 * 11 * 13
"""A sample of every second to sixteenth element never includes both of two places whose distance
has no factor in common with this number: a cache keyed by such a sample misses at least one of
them."""


def draw_change(
    operation: Operation,
    inputs: Sequence[Array],
    kind: ChangeKind,
    place: int,
    rng: np.random.Generator,
) -> InputChange:
    """A change of `kind` at a place drawn from `rng`; NEGATED where there are too few lines to
    swap.

    Args:
        inputs: host arrays of ``operation.inputs``, in storage shapes; not modified.
        kind: any but the two of :func:`draw_exchange`.
        place: of the operand, one of :func:`changeable`.
    """
    lines = _lines(operation, inputs, place)
    if kind is ChangeKind.SWAPPED and lines.shape[0] > 1:
        pair = _unlike_lines(lines, rng)
        return _change(operation, kind, place, pair, lines[[pair[1], pair[0]]])
    if kind in (ChangeKind.ONE_ELEMENT, ChangeKind.LAST_ELEMENT):
        is_last = kind is ChangeKind.LAST_ELEMENT
        first, *at = [size - 1 for size in lines.shape] if is_last else _far_element(lines, rng)
        line = np.array(lines[first])
        index = tuple(slice(i, i + 1) for i in at)
        line[index] = negative(line[index])
        return _change(operation, kind, place, (first,), line[np.newaxis])
    first = int(rng.integers(lines.shape[0]))
    line = np.array(lines[first])
    flat = line.reshape(-1)
    if kind is not ChangeKind.ELEMENTS_SWAPPED or flat.size == 1:
        return _change(operation, ChangeKind.NEGATED, place, (first,), negative(line)[np.newaxis])
    one, other = _unequal_pair(flat, rng)
    flat[[one, other]] = flat[[other, one]]
    return _change(operation, kind, place, (first,), line[np.newaxis])


def negated_factor(operation: Operation, inputs: Sequence[Array], place: int) -> InputChange:
    """A scalar scale factor with its sign flipped."""
    role = operation.inputs[place].role
    return InputChange(ChangeKind.NEGATED, place, role, (), negative(inputs[place]))


def unchanged_line(
    operation: Operation, inputs: Sequence[Array], place: int, rng: np.random.Generator
) -> InputChange:
    """A line that keeps its contents, to check the result where something else changed."""
    lines = _lines(operation, inputs, place)
    line = int(rng.integers(lines.shape[0]))
    return _change(operation, ChangeKind.NEGATED, place, (line,), lines[[line]])


def has_crossings(operation: Operation, place: int) -> bool:
    """Whether the operand has two lines of two elements, which :func:`draw_exchange` needs."""
    sizes = list(operation.inputs[place].shape)
    lines = sizes.pop(line_axis(operation, place))
    return lines > 1 and bool(sizes) and sizes[-1] > 1


def draw_exchange(
    operation: Operation,
    inputs: Sequence[Array],
    place: int,
    rng: np.random.Generator,
    *,
    everywhere: bool = False,
) -> tuple[InputChange, InputChange]:
    """A CROSSED change, the necessary starting point, and an EXCHANGED change at the same place,
    which preserves every sum over a row or a column that CROSSED produced.

    Args:
        place: of an operand that :func:`has_crossings`.
        everywhere: exchange all elements of the two lines, half with half, so that the change is
            visible even where the result's format rounds a few away or relu leaves only a few.
    """
    lines = _lines(operation, inputs, place)
    pair = _unlike_lines(lines, rng)
    both = lines[list(pair)]
    # Along the last axis, so that in a batch both elements belong to the same matrix.
    crossing = both.reshape(2, -1, both.shape[-1])
    size = crossing.shape[2]
    if everywhere:
        at = slice(None)
        ones, others = np.arange(size // 2), np.arange(size // 2, size // 2 * 2)
    else:
        row = int(rng.integers(crossing.shape[1]))
        at = slice(row, row + 1)
        places = rng.integers(size, size=_TRIES)
        ones = places[[np.argmax(np.abs(to_float64(crossing[0, row, places])))]]
        others = (ones + rng.integers(1, size)) % size
    values = crossing[0, at][:, ones]
    made = []
    for a, b in ((values, negative(values)), (negative(values), values)):
        contents = np.array(crossing)
        for line, (one, other) in zip(contents, ((a, b), (b, a)), strict=True):
            line[at][:, ones], line[at][:, others] = one, other
        made.append(contents.reshape(both.shape))
    return (
        _change(operation, ChangeKind.CROSSED, place, pair, made[0]),
        _change(operation, ChangeKind.EXCHANGED, place, pair, made[1]),
    )


def _lines(operation: Operation, inputs: Sequence[Array], place: int) -> Array:
    """A view of an operand with its lines along the first axis."""
    logical = to_logical(inputs[place], operation.inputs[place])
    return np.moveaxis(logical, line_axis(operation, place), 0)


def _change(
    operation: Operation, kind: ChangeKind, place: int, lines: tuple[int, ...], contents: Array
) -> InputChange:
    """`contents` has the lines along the first axis."""
    own = np.ascontiguousarray(np.moveaxis(contents, 0, line_axis(operation, place)))
    return InputChange(kind, place, operation.inputs[place].role, lines, own)


def _unlike_lines(lines: Array, rng: np.random.Generator) -> tuple[int, int]:
    """Two lines, with different contents if a few tries find such lines."""
    first = int(rng.integers(lines.shape[0]))
    others = (first + rng.integers(1, lines.shape[0], size=_TRIES)) % lines.shape[0]
    unlike = (int(i) for i in others if not same_bytes(lines[i], lines[first]))
    return first, next(unlike, int(others[0]))


def _far_element(lines: Array, rng: np.random.Generator) -> list[int]:
    """Position of one of the larger numbers, away from the edges, and at a distance in memory from
    the last one that has no factor in common with :data:`_STRIDES`, if a few tries find such a
    position."""
    sizes = np.array(lines.shape)
    places = sizes // 4 + rng.integers((sizes + 1) // 2, size=(_TRIES_OF_ONE, lines.ndim))
    numbers = np.abs(to_float64(lines[tuple(places.T)]))
    distances = (sizes - 1 - places) @ (np.array(lines.strides) // lines.itemsize)
    is_far = np.gcd(distances, _STRIDES) == 1
    return [int(i) for i in places[np.lexsort((numbers, is_far))[-1]]]


def _unequal_pair(flat: Array, rng: np.random.Generator) -> tuple[int, int]:
    one = int(rng.integers(flat.size))
    others = (one + rng.integers(1, flat.size, size=_TRIES)) % flat.size
    apart = np.abs(to_float64(flat[others]) - to_float64(flat[one : one + 1]))
    return one, int(others[int(np.argmax(apart))])


PERIOD = 16381
"""Elements after which a fill repeats: a prime, so that no row of a result equals the previous one,
and few enough to be copied to a device quickly."""

_PLAUSIBLE_SIZE = 24.0
"""Largest number in a fill: every format has it, and results of small products are of that size."""


def prepared_edits(
    device: Device, specs: Sequence[TensorSpec], buffers: Sequence[Buffer], edits: Sequence[Edit]
) -> list[Callable[[], None]]:
    """A function that applies `edits` to `buffers` (in the order of `specs`), one after the other:
    see :class:`gemmetry.domain.contracts.EditableDevice`. For other devices it reads the whole
    buffer, changes it and writes it back."""
    if _is_editable(device):
        return [device.prepared_edit(buffers[e.place], e.index, e.contents) for e in edits]

    def rewrite(place: int, edits: Sequence[Edit]) -> None:
        whole = np.array(device.download(buffers[place], specs[place]))
        for edit in edits:
            whole[edit.index] = edit.contents
        device.write(buffers[place], whole, specs[place])

    by_place = grouped(edits, lambda edit: edit.place)
    return [partial(rewrite, *one) for one in by_place.items()]


def _is_editable(device: Device) -> TypeGuard[EditableDevice]:
    return _has_edits(type(device))


@cache
def _has_edits(kind: type) -> bool:
    # Tested once per class: a test against a protocol checks every attribute.
    return issubclass(kind, EditableDevice)


def fill_plausibly(device: Device, buffer: Buffer, spec: TensorSpec, number: int) -> None:
    """Fill a buffer with plausible result values that differ between neighbouring elements and
    between calls with different `number`."""
    start = -101 * number % PERIOD
    values = _plausible_values(spec.dtype)[start : start + PERIOD]
    if _is_editable(device):
        device.fill_repeating(buffer, values)
    else:
        device.write(buffer, np.resize(values, spec.storage_shape), spec)


@cache
def _plausible_values(dtype: DType) -> Array:
    """Two periods, so that a period may begin at any element of the first."""
    rng = np.random.default_rng(PERIOD)
    if dtype.is_integer:
        return np.tile(rng.integers(-100, 100, PERIOD).astype(numpy_dtype(dtype)), 2)
    values: Floats = rng.uniform(-_PLAUSIBLE_SIZE, _PLAUSIBLE_SIZE, PERIOD)
    return np.tile(quantize(values, dtype), 2)
