"""Contents that a kernel may treat in a way of their own: partial structure, both ends of formats,
long sums with full significands, and special numbers in every operand.

Random numbers have none of these. Inputs are whole numbers times powers of two whose sums are
exact, so that every bit of the result is known; see :mod:`gemmetry.verification.inputs.exact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import product
from typing import cast

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import (
    BF16,
    E2M1,
    E4M3,
    E8M0,
    F16,
    F32,
    F64,
    Conv2dShape,
    DType,
    EpilogueStep,
    Operation,
    Scaling,
    TensorSpec,
)
from gemmetry.numerics.bounds import rounds_once
from gemmetry.numerics.inputs import exact_integer_limit, make_inputs
from gemmetry.numerics.references import Scalar, logical_tensors, to_logical, to_storage
from gemmetry.numerics.storage import (
    FORMATS_WITHOUT_INFINITY,
    Array,
    Float64Array,
    numpy_dtype,
    quantize,
    smallest_normal,
    smallest_subnormal,
    to_float64,
)

Mask = npt.NDArray[np.bool_]
Inputs = tuple[Array, ...]

GRID = 8
"""Elements whose row and column are multiples of this keep a structure that the others lack."""

BELOW_NORMAL = "results below the smallest normal number"

_MARGIN = 6
"""Powers of two between the numbers of :func:`ends` and those that a format cannot hold: for scale
factors, and for terms that are added."""

_LARGEST_CODE = 15
"""Magnitude of the whole numbers that are moved to the ends of formats."""

_FEWEST_LINES = 4
"""Operands of fewer rows or columns than this have no partial structure."""


@dataclass(frozen=True)
class Contents:
    """Inputs, and what they are."""

    label: str
    made: Inputs | Callable[[], Inputs]
    """The inputs, or a function that draws them: not every one of hundreds is launched."""
    affected: Mask | None = None
    """Elements of the result, in logical shape, that depend on a special number."""
    signs: npt.NDArray[np.int8] | None = None
    """Sign of the infinity that each of them holds; 0: NaN, or unknown."""
    is_infinite: bool = False
    steps: tuple[EpilogueStep, ...] = ()
    """Epilogue steps that follow: relu and gelu turn some special numbers into zero."""

    @cached_property
    def inputs(self) -> Inputs:
        """Host arrays of the operation's inputs."""
        return self.made() if callable(self.made) else self.made


# Structure ---------------------------------------------------------------------------------------

_Draw = Callable[[Float64Array, np.random.Generator], Float64Array]
"""(random whole numbers in two dimensions, a stream) -> a matrix with a structure."""


def _mirrored(sign: float) -> _Draw:
    def draw(base: Float64Array, rng: np.random.Generator) -> Float64Array:
        size = min(base.shape)
        upper = np.triu(base[:size, :size], 1)
        whole = base.copy()
        whole[:size, :size] = upper + sign * upper.T
        whole[np.arange(size), np.arange(size)] = np.diag(base) if sign > 0 else 0
        return whole

    return draw


def _paired(base: Float64Array) -> Float64Array:
    """Neighbouring rows that add up to zero; what is left over is zero."""
    rows, even = base.copy(), len(base) // 2 * 2
    rows[1:even:2] = -rows[:even:2]
    rows[even:] = 0
    return rows


def _selected(base: Float64Array, rng: np.random.Generator) -> Float64Array:
    rows, columns = base.shape
    whole = np.zeros_like(base)
    whole[np.arange(rows), np.resize(rng.permutation(columns), rows)] = 1
    return whole


def _two_of_four(base: Float64Array) -> Float64Array:
    return np.where(np.arange(len(base))[:, np.newaxis] % 4 < 2, base, 0.0)


def _first_half(base: Float64Array) -> Float64Array:
    return np.where(np.arange(len(base))[:, np.newaxis] < len(base) // 2, base, 0.0)


def _repeated(base: Float64Array, rows: int) -> Float64Array:
    """The first rows of `base`, again and again."""
    return base[np.arange(len(base)) % rows]


STRUCTURES: Mapping[str, _Draw] = {
    "zero": lambda base, _: np.zeros_like(base),
    "one number": lambda base, _: np.full_like(base, base[0, 0]),
    "ones": lambda base, _: np.ones_like(base),
    "identity": lambda base, _: np.eye(*base.shape),
    "minus the identity": lambda base, _: -np.eye(*base.shape),
    "diagonal": lambda base, _: np.eye(*base.shape) * base,
    "a permutation": _selected,
    "upper triangular": lambda base, _: np.triu(base),
    "lower triangular": lambda base, _: np.tril(base),
    "tridiagonal": lambda base, _: np.triu(np.tril(base, 1), -1),
    "symmetric": _mirrored(1),
    "antisymmetric": _mirrored(-1),
    "equal rows": lambda base, _: np.repeat(base[:1], len(base), 0),
    "equal columns": lambda base, _: np.repeat(base[:, :1], base.shape[1], 1),
    "pairs of equal rows": lambda base, _: np.repeat(base[::2], 2, 0)[: len(base)],
    "pairs of equal columns": lambda base, _: np.repeat(base[:, ::2], 2, 1)[:, : base.shape[1]],
    "rows that repeat after sixteen": lambda base, _: _repeated(base, 16),
    "columns that repeat after sixteen": lambda base, _: _repeated(base.T, 16).T,
    "of rank one": lambda base, _: np.outer(np.sign(base[:, 0]), base[0]),
    "rows that add up to zero": lambda base, _: _paired(base.T).T,
    "columns that add up to zero": lambda base, _: _paired(base),
    "rows and columns that add up to one": lambda base, _: (
        _paired(_paired(base).T).T + np.eye(*base.shape)
    ),
    "two of four in a column": lambda base, _: _two_of_four(base),
    "two of four in a row": lambda base, _: _two_of_four(base.T).T,
    "zero in the second half of rows": lambda base, _: _first_half(base),
    "zero in the second half of columns": lambda base, _: _first_half(base.T).T,
    "a half that is equal to the other in a row": lambda base, _: (
        _repeated(base.T, base.shape[1] // 2 or 1).T
    ),
    "a half that is equal to the other in a column": lambda base, _: _repeated(
        base, len(base) // 2 or 1
    ),
    "zero in places": lambda base, rng: base * (rng.random(base.shape) < 0.5),
    "zero or positive": lambda base, rng: np.abs(base) * (rng.random(base.shape) < 0.5),
    "small numbers": lambda base, _: np.sign(base) * (1 + np.abs(base) % 3),
    "signs alone": lambda base, _: np.sign(base),
    "without negative numbers": lambda base, _: np.abs(base),
    "powers of two": lambda base, _: np.exp2(np.floor(np.log2(np.abs(base)))) * np.sign(base),
    "sorted": lambda base, _: np.sort(base, axis=None).reshape(base.shape),
}
"""Structures that a kernel might recognise and treat specially."""

_OF_OTHERS = (
    "zero", "one number", "ones", "equal rows", "equal columns", "zero in places",
    "zero or positive", "zero in the second half of rows", "zero in the second half of columns",
    "without negative numbers",
)  # fmt: skip
"""Structures of operands other than A and B."""

_EQUAL = "the same in the whole batch"

VARIANTS = ("whole", "but for one element", "but for one line", "where one would look")
"""How much of an operand has a structure. One would look at the corners, the edges, the diagonals
and every eighth element; all others are random in the last variant."""


def structures(
    operation: Operation,
    seed: int,
    *,
    variants: Sequence[str] = VARIANTS,
    parity: int | None = None,
) -> Iterator[Contents]:
    """Each structure, in each variant, in one operand at a time; the others are random. Also B as a
    copy of A, or of its transpose, where shapes permit.

    Args:
        parity: 0 or 1: every second structure alone, in A the other half than in B; None: all.
    """
    limit = structure_limit(operation)
    if not limit:
        return
    stream = [seed % 2**64, *operation.matmul_shape]
    base = _integers(operation, limit, np.random.default_rng(stream))
    for at, spec in enumerate(operation.inputs):
        values = to_float64(to_logical(base[at], spec))
        if not spec.role.startswith("scale_") and max(matrices_of(values)[0].shape) < _FEWEST_LINES:
            continue
        names = list(STRUCTURES if at < 2 else _OF_OTHERS)
        if parity is not None:
            names = names[(at + parity) % 2 :: 2]
        if len(spec.shape) == 3:
            names.append(_EQUAL)
        if spec.role.startswith("scale_"):
            names = ["ones"]
        first = matrices_of(values)[0].copy()
        for number, (name, variant) in enumerate(product(names, variants)):
            draw = STRUCTURES.get(name, lambda _, rng, first=first: first)
            made = partial(_structured, spec, values, draw, variant, limit, [*stream, at, number])
            yield Contents(f"{spec.role} is {name}, {variant}", partial(_with, base, at, made))
    lhs, rhs = operation.inputs[:2]
    if len(lhs.shape) == 4:
        return
    rng, a = np.random.default_rng([*stream, len(base)]), to_float64(to_logical(base[0], lhs))
    for how, values in (("A", a), ("A transposed", np.swapaxes(a, -1, -2))):
        for variant in variants if values.shape == rhs.shape else ():
            copy = _structured(rhs, values, lambda whole, _: whole, variant, limit, rng)
            yield Contents(f"rhs is {how}, {variant}", (base[0], copy, *base[2:]))


def _with(base: Inputs, at: int, made: Callable[[], Array]) -> Inputs:
    return (*base[:at], made(), *base[at + 1 :])


def structure_limit(operation: Operation) -> int:
    """The largest magnitude of the whole numbers, of which all K products of one sign are exact and
    finite; 0: there is none."""
    s, limit = operation.signature, exact_integer_limit(operation)
    if s.lhs.is_integer:
        return limit
    room = 2.0**s.accumulator.significand_bits
    if s.blocks is None:
        room = min(room, s.result.maximum / max(1.0, abs(s.alpha)) / 4)
    return min(limit, math.isqrt(int(room / operation.matmul_shape.k)))


def _integers(operation: Operation, limit: int, rng: np.random.Generator) -> Inputs:
    made = list(make_inputs(operation, distribution="integers", seed=int(rng.integers(2**31))))
    for at, spec in enumerate(operation.inputs):
        if not spec.role.startswith("scale_"):
            made[at] = _stored(_whole_numbers(spec.shape, limit, rng), spec)
    return tuple(made)


def _whole_numbers(shape: tuple[int, ...], limit: int, rng: np.random.Generator) -> Float64Array:
    """Uniform in ±[1, limit]."""
    drawn = rng.integers(1, limit, shape, endpoint=True) * rng.choice((-1, 1), shape)
    return cast(Float64Array, drawn.astype(np.float64))


def _stored(values: Float64Array, spec: TensorSpec) -> Array:
    return to_storage(quantize(values, spec.dtype), spec)


def matrices_of(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """`values` as one or more matrices: a vector as a row, an image or a filter as one matrix."""
    if values.ndim == 4:
        return values.reshape(1, -1, values.shape[-1])
    return values.reshape(-1, *np.atleast_2d(values).shape[-2:])


def _structured(
    spec: TensorSpec,
    base: Float64Array,
    draw: _Draw,
    variant: str,
    limit: int,
    stream: Sequence[int] | np.random.Generator,
) -> Array:
    """The operand `base` with a structure in all of its matrices, as it is stored."""
    rng, values = np.random.default_rng(stream), np.array(base)
    for matrix in matrices_of(values):
        if spec.role.startswith("scale_"):
            other = np.where(rng.random(matrix.shape) < 0.5, 2.0, 0.5)
        else:
            other = _whole_numbers(matrix.shape, limit, rng)
        matrix[...] = _varied(draw(matrix.copy(), rng), other, variant, rng)
    return _stored(values, spec)


def _varied(
    whole: Float64Array, other: Float64Array, variant: str, rng: np.random.Generator
) -> Float64Array:
    """`whole`, or `other` in a part of it."""
    changed: Mask = np.zeros(whole.shape, dtype=np.bool_)
    row, column = (int(rng.integers(size // 3, size)) for size in whole.shape)
    if variant == "but for one element":
        changed[row, column] = True
    elif variant == "but for one line":
        is_row = len(whole) > 1 and rng.random() < 0.5
        changed[row if is_row else (slice(None), column)] = True
    elif variant == "where one would look":
        changed = _unseen(*whole.shape)
    # Where both agree nothing would change.
    return np.where(changed, np.where(other == whole, -other, other), whole)


@cache
def _unseen(rows: int, columns: int) -> Mask:
    """Elements of a matrix away from the corners, the edges, the diagonals and the grid."""
    i, j = np.indices((rows, columns))
    if rows == 1:
        seen = (j < 2) | (j >= columns - 1) | (j % GRID == 0) | (j == columns // 2)
    else:
        seen = (i < 2) | (j < 2) | (i >= rows - 1) | (j >= columns - 1)
        seen |= (np.abs(i - j) < 2) | (np.abs(i + j - columns) < 2)
        seen |= ((i % GRID == 0) & (j % GRID == 0)) | ((i < GRID) & (j < GRID))
    return cast(Mask, np.logical_not(seen))


# Both ends of formats ----------------------------------------------------------------------------


_SCALED_GENTLY = 20
"""Powers of two that results stay below their largest number where an operand is small: kernels may
scale its lines up by so much on the way."""


def ends(operation: Operation, seed: int, *, by_norm: bool = False) -> Iterator[Contents]:
    """Whole numbers times one power of two in A and another in B, near both ends of the range of
    A, B, the sums and the result, as far as all stays normal; f16 and fp8 results also below their
    smallest normal number.

    Args:
        by_norm: the kernel declares that it may divide an operand by its norm: sums of the other
            operand alone stay in range, too.
    """
    s = operation.signature
    limit = min(structure_limit(operation), _LARGEST_CODE)
    if s.lhs.is_integer or limit < 1 or s.alpha == 0:
        return
    rng = np.random.default_rng([seed % 2**64, 1, *operation.matmul_shape])
    base = _integers(operation, limit, rng)
    k = operation.matmul_shape.k
    factor = math.ceil(abs(math.log2(abs(s.alpha)))) + _MARGIN
    if s.scaling is not Scaling.NONE and s.result.is_fp8:
        factor += max(0, math.ceil(math.log2(k)) - 7)
    low_a, high_a = _room(s.lhs, limit, factor)
    low_b, high_b = _room(s.rhs, limit, factor)
    if by_norm:
        sums = math.ceil(math.log2(k * limit))
        high_a, high_b = high_a - sums, high_b - sums
    formats = (s.accumulator, s.result)
    bottom = max(math.ceil(math.log2(smallest_normal(one))) + factor for one in formats)
    top = min(
        math.floor(math.log2(one.maximum / (k * limit**2 * max(1.0, abs(s.alpha))))) - _MARGIN
        for one in formats
    )
    bottom, top = max(bottom, low_a + low_b), min(top, high_a + high_b)
    middle = min(max(0, bottom), top)
    places: list[tuple[str, int, int | None]] = []
    if bottom <= top:
        places = [
            ("results near the lower end", bottom, None),
            ("results near the upper end", top, None),
            ("A near its lower end", middle, low_a),
            ("A near its upper end", middle, high_a),
            ("A and results near their lower ends", bottom, low_a),
            ("B and results near their lower ends", bottom, bottom - low_b),
            ("A and results near their upper ends", top, high_a),
            ("B and results near their upper ends", top, top - high_b),
        ]
    seen = set()
    for label, total, wanted in places:
        least, most = max(low_a, total - high_b), min(high_a, total - low_b)
        power = min(max(total // 2 if wanted is None else wanted, least), most)
        if total == top > _SCALED_GENTLY and min(power, total - power) < 0:
            total -= _SCALED_GENTLY
            power = max(power - _SCALED_GENTLY, low_a) if power > 0 else power
        if least <= most and (power, total) not in seen:
            seen.add((power, total))
            yield Contents(label, _moved(operation, base, power, total))
    below = _below_normal(operation, limit)
    if below is not None:
        yield Contents(BELOW_NORMAL, _moved(operation, base, below // 2, below))


def _room(dtype: DType, limit: int, factor: int) -> tuple[int, int]:
    """The smallest and the largest power of two of an operand; formats of less than 32 bits have no
    room for the factors, which are not applied in them."""
    margin = factor if dtype.storage_bits > 16 or dtype is BF16 else 0
    low = math.ceil(math.log2(smallest_normal(dtype))) + margin
    return low, math.floor(math.log2(dtype.maximum / limit)) - margin


def _below_normal(operation: Operation, limit: int) -> int | None:
    """The power of two of products whose sums are about the smallest normal number of the result,
    so that half of them are rounded to fewer bits; None where formats may flush them, or where
    something else is rounded too."""
    s = operation.signature
    if s.result is not F16 and not s.result.is_fp8:
        return None
    if not rounds_once(operation) or s.accumulator not in (F32, F64) or s.blocks is not None:
        return None
    size = math.sqrt(operation.matmul_shape.k) * limit**2 / 3 * abs(s.alpha)
    total = math.floor(math.log2(smallest_normal(s.result) / size))
    total = min(total, math.floor(math.log2(smallest_subnormal(s.result))) - 3)
    # Whole numbers times the smallest subnormal number are exact.
    steps = [math.ceil(math.log2(smallest_subnormal(one))) for one in (s.lhs, s.rhs)]
    return total if total // 2 >= steps[0] and total - total // 2 >= steps[1] else None


def _moved(operation: Operation, base: Inputs, power: int, total: int) -> Inputs:
    """`base` with A times 2**power, B such that products are times 2**total, and what is added
    times that as well, as far as its format allows."""
    powers = {"lhs": power, "rhs": total - power}
    moved = []
    for spec, array in zip(operation.inputs, base, strict=True):
        if not spec.role.startswith("scale_"):
            with np.errstate(over="ignore"):
                values = np.ldexp(to_float64(array), powers.get(spec.role, total))
            array = quantize(np.clip(values, -spec.dtype.maximum, spec.dtype.maximum), spec.dtype)
        moved.append(array)
    return tuple(moved)


# Long sums of one number -------------------------------------------------------------------------


def one_of_many(operation: Operation, seed: int, codes: str) -> Contents | None:
    """One operand with numbers that use every bit of their format, the other with a single ±1 for
    each column of B, or row of A, at places drawn along all of K: however long the sum, it is one
    number. None where sums of a convolution hold several."""
    s = operation.signature
    if isinstance(operation.shape, Conv2dShape) or s.blocks is not None:
        return None
    rng = np.random.default_rng([seed % 2**64, codes == "lhs", *operation.matmul_shape])
    base = list(make_inputs(operation, distribution="integers", seed=seed))
    lhs, rhs = operation.inputs[:2]
    spec, other = (lhs, rhs) if codes == "lhs" else (rhs, lhs)
    bits = min(spec.dtype.significand_bits, s.accumulator.significand_bits)
    limit = 127 if s.lhs.is_integer else int(min(2.0**bits, s.result.maximum / 8))
    if limit < 1:
        return None
    numbers = _whole_numbers(spec.shape, limit, rng)
    # All bits set, or a single one, are as rare as any other number.
    where = rng.random(spec.shape)
    top = float(1 << (limit.bit_length() - 1))
    numbers[where < 1 / 8] = 2 * top - 1 if 2 * top - 1 <= limit else top - 1 or 1
    numbers[where > 7 / 8] = -top
    ones = np.zeros(other.shape)
    lines = np.swapaxes(ones, -1, -2) if codes == "lhs" else ones
    for matrix in matrices_of(lines):
        rows, k = np.arange(len(matrix)), matrix.shape[1]
        places = (rows * k // len(matrix) + rng.integers(k)) % k
        matrix[rows, places] = rng.choice((-1.0, 1.0), len(matrix))
    at = 0 if codes == "lhs" else 1
    base[at], base[1 - at] = _stored(numbers, spec), _stored(ones, other)
    return Contents(f"{codes} of every bit, and a single one along K", tuple(base))


# Factors of blocks -------------------------------------------------------------------------------


def small_factors(operation: Operation, seed: int) -> Contents | None:
    """Whole numbers with factors of blocks below the smallest normal number of e4m3, or far down in
    e8m0; the other operand has the largest factors for which results stay normal. None for others.
    """
    blocks = operation.signature.blocks
    if blocks is None or blocks.dtype not in (E4M3, E8M0):
        return None
    limit = structure_limit(operation)
    if limit < 1:
        return None
    rng = np.random.default_rng([seed % 2**64, 3, *operation.matmul_shape])
    inputs = list(_integers(operation, 1, rng))
    for at, spec in enumerate(operation.inputs):
        if spec.role == "scale_a":
            values = np.full(spec.shape, 2.0**-60)
            if blocks.dtype is E4M3:
                values = smallest_subnormal(E4M3) * rng.choice((1.0, 2.0, 4.0), spec.shape)
            inputs[at] = _stored(values, spec)
        elif spec.role == "scale_b":
            large = 2.0**8 if blocks.dtype is E4M3 else 2.0**60
            inputs[at] = _stored(np.full(spec.shape, large), spec)
    return Contents("factors of A's blocks near the end of their format", tuple(inputs))


# Special numbers ---------------------------------------------------------------------------------


def specials(operation: Operation, seed: int) -> Iterator[Contents]:
    """Many NaN, then many infinities, in one operand at a time: in every second row of A, at places
    that together have every remainder along K, also in B, and in addends and factors. NaN of either
    sign, quiet and signalling, with a payload. A few in several operands at once."""
    rng = np.random.default_rng([seed % 2**64, 2, *operation.matmul_shape])
    limit = structure_limit(operation)
    if not limit or operation.signature.lhs.is_integer:
        return
    base = _integers(operation, limit, rng)
    blocks = operation.signature.blocks
    is_convolution = isinstance(operation.shape, Conv2dShape)
    for is_infinite in (False, True):
        made: list[tuple[int, Contents]] = []
        for at, spec in enumerate(operation.inputs):
            is_block_factor = spec.role.startswith("scale_") and blocks is not None
            has_none = spec.role in ("lhs", "rhs") and (is_convolution or spec.dtype is E2M1)
            if is_infinite:
                has_none |= spec.dtype in FORMATS_WITHOUT_INFINITY or is_block_factor
            for first in () if has_none else (0, 1):
                made.append((at, _spoiled(operation, base, at, first, is_infinite, rng)))
                yield made[-1][1]
        if len(made) > 2:
            inputs, each = list(base), [one for _, one in made[::2]]
            for at, one in made[::2]:
                inputs[at] = one.inputs[at]
            known = [one.affected for one in each if one.affected is not None]
            affected = np.logical_or.reduce(known)
            steps = max((one.steps for one in each), key=len)
            label = f"{'infinities' if is_infinite else 'NaN'} in all operands"
            yield Contents(label, tuple(inputs), affected, None, is_infinite, steps)


def _spoiled(
    operation: Operation,
    base: Inputs,
    at: int,
    first: int,
    is_infinite: bool,
    rng: np.random.Generator,
) -> Contents:
    """`base` with special numbers in the operand `at`."""
    spec, steps = operation.inputs[at], operation.signature.epilogue
    array = np.array(base[at])
    logical = to_logical(array, spec)
    where: Mask = np.zeros(spec.shape, dtype=np.bool_)
    if spec.role in ("lhs", "rhs"):
        lines = where if spec.role == "lhs" else np.swapaxes(where, -1, -2)
        for member in np.ndindex(lines.shape[:-2]):
            _spoil_lines(lines[member], first, rng)
    else:
        flat = where.reshape(-1)
        flat[rng.random(flat.size) < 1 / 8] = True
        flat[int(rng.integers(flat.size))] = True
        flat[-1 if first else 0] = True
    count = int(where.sum())
    logical[where] = (
        rng.choice((-np.inf, np.inf), count).astype(numpy_dtype(spec.dtype))
        if is_infinite
        else nan_codes(spec.dtype, count)
    )
    if spec.role in map(str, steps):  # the steps from where the operand enters
        steps = steps[steps.index(EpilogueStep(spec.role)) :]
    inputs = _with(base, at, lambda: array)
    affected = affected_by(operation, spec, where)
    signs = _signs(operation, inputs, spec, where) if is_infinite else None
    label = f"{'infinities' if is_infinite else 'NaN'} in {spec.role}"
    return Contents(label, inputs, affected, signs, is_infinite, steps)


def _spoil_lines(matrix: Mask, first: int, rng: np.random.Generator) -> None:
    """One place in every second row of `matrix`, and a second one in some: together they have as
    many remainders along K as there are rows."""
    rows, k = matrix.shape
    chosen = np.arange(min(first, rows - 1), rows, 2)
    order = np.resize(rng.permutation(k), len(chosen))
    matrix[chosen, order] = True
    matrix[chosen[::3], (order[::3] + 1 + int(rng.integers(k))) % k] = True


def nan_codes(dtype: DType, count: int) -> Array:
    """NaN of `dtype` in turn: as numpy makes it, with the other sign, with all bits set, with the
    lowest bit alone (signalling), with two bits."""
    storage = numpy_dtype(dtype)
    unsigned = np.dtype(f"u{storage.itemsize}")
    whole = (1 << 8 * storage.itemsize) - 1
    exponent, nan = map(int, np.array([np.inf, np.nan]).astype(storage).view(unsigned))
    candidates = [nan, whole, whole >> 1]
    quiet = 1 << max(0, dtype.significand_bits - 2)
    candidates += [exponent | 1, exponent | quiet | 1, (whole >> 1) ^ 1]
    codes = np.array(candidates, dtype=unsigned).view(storage)
    return np.resize(codes[np.isnan(to_float64(codes))], count)


def affected_by(operation: Operation, spec: TensorSpec, where: Mask) -> Mask:
    """Elements of the result that depend on the elements `where` of the operand `spec`."""
    shape, blocks = operation.output.shape, operation.signature.blocks
    if spec.role == "lhs":
        found = where.any(axis=-1, keepdims=True)
    elif spec.role == "rhs":
        found = where.any(axis=-2, keepdims=True)
    elif spec.role == "scale_a" and blocks is not None:
        found = np.repeat(where.any(axis=-1, keepdims=True), blocks.rows, -2)[..., : shape[-2], :]
    elif spec.role == "scale_b" and blocks is not None:
        found = np.repeat(where.any(axis=-2, keepdims=True), blocks.columns, -1)[..., : shape[-1]]
    else:
        found = where
    return np.array(np.broadcast_to(found, shape))


def _signs(
    operation: Operation, inputs: Inputs, spec: TensorSpec, where: Mask
) -> npt.NDArray[np.int8]:
    """Signs of the infinities of the result; 0 where they are unknown, as where infinities of both
    signs meet."""
    logical = logical_tensors(operation, inputs)
    tensors = {role: to_float64(array) for role, array in logical.items()}
    s = operation.signature
    marked = np.where(where, np.sign(tensors[spec.role]), 0.0)
    if spec.role in ("lhs", "rhs"):
        lhs = marked if spec.role == "lhs" else np.sign(tensors["lhs"])
        rhs = marked if spec.role == "rhs" else np.sign(tensors["rhs"])
        total = lhs @ rhs * np.sign(s.alpha)
        count = np.abs(lhs) @ np.abs(rhs)
        if s.scaling is not Scaling.NONE and s.blocks is None:
            total = total * np.sign(tensors["scale_a"]) * np.sign(tensors["scale_b"])
        agreed = np.where(np.abs(total) == count, np.sign(total), 0.0)
    elif spec.role == "addend":
        agreed = np.sign(s.beta) * marked
    elif spec.role.startswith("scale_"):
        agreed = np.zeros(operation.output.shape)
    else:
        agreed = marked
    return np.array(np.broadcast_to(agreed, operation.output.shape)).astype(np.int8)
