"""Inputs whose sums are all exact, so that every bit of the result is known.

Random inputs prove little about precision: rounding to tf32, a 16-bit accumulator or a lost product
hide among legitimate rounding errors as K grows. With small integers no partial sum rounds in any
order, so any difference from the expectation is a bug or another arithmetic.

Exact inputs and their results, kept for the next dispatch of the same operation.

The sequence of small changes of inputs.

A kernel that caches results recognises its inputs by some key. Unless the key covers all contents,
one of the changes here leaves it unchanged although the result changes. Changes accumulate: each is
applied on top of the earlier ones, so that a launch differs from the previous one by a single
change. It therefore does not matter whether a kernel caches all of its results or only the last.

===================================  ==========================================================
what inputs may be known by          what leaves it as it was, and changes the result
===================================  ==========================================================
other operands, addresses, shapes,   every change
versions, times and numbers of calls
magnitudes, norms                    one element negated
every n-th element (n to 16), first  one element, or the last one in memory: never both in such a
and last lines, diagonal, all but a  sample
rest of a few
sum, minimum, maximum, sorted        an exchange where two rows and two columns cross: sums of
values, sums of rows and of columns, rows and of columns, sums of powers, numbers of each row and of
and of their squares and magnitudes, each column, magnitudes, sums weighted by position, and sums
checksums without an order or        without an order all stay
weighted by position
sums of hashes of rows, A'A          two rows of A, or columns of B, swapped
sizes of sums, AA' of one row        a line negated
===================================  ==========================================================

The only remaining key is a hash of all, or nearly all, of the contents.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from gemmetry.domain.operation import Conv2dShape, EpilogueStep, Operation, TensorSpec
from gemmetry.numerics.bounds import is_power_of_two_or_zero, rounds_once
from gemmetry.numerics.inputs import (
    ChangeKind,
    Edit,
    InputChange,
    changeable,
    draw_change,
    draw_exchange,
    edits,
    exact_integer_limit,
    has_crossings,
    make_inputs,
    negated_factor,
    unchanged_line,
    undoing,
)
from gemmetry.numerics.inputs import line_axis as axis_of_lines
from gemmetry.numerics.references import (
    Matmul,
    Reference,
    apply_epilogue,
    exact_product,
    logical_tensors,
    to_logical,
    to_storage,
    with_epilogue,
)
from gemmetry.numerics.storage import (
    Array,
    Float64Array,
    Floats,
    finite_range,
    numpy_dtype,
    quantize,
    to_float64,
)
from gemmetry.verification.comparison import in_order


@dataclass(frozen=True, slots=True)
class ExactCase:
    """Inputs in storage shapes, and the expected result."""

    inputs: tuple[Array, ...]
    expected: Array | None
    """The result itself, in its format and logical shape, where every bit of it is known."""
    reference: Reference | None
    """Otherwise the reference to compare with. Its magnitude is |A·B|, not |A||B|: as sums are
    exact, only the epilogue's roundings count, and they are relative to the rounded values. With
    `folded_terms` it is the largest possible partial sum."""
    folded_terms: int = 0
    """Number of terms of a sum that is rounded if a kernel multiplies an operand by alpha or a
    scale factor, or begins the sum with beta·C; 0 where the sums of such kernels are exact too."""

    @property
    def value(self) -> Array:
        """The result, or the value of the reference in its place."""
        if self.expected is not None:
            return self.expected
        assert self.reference is not None
        return self.reference.value

    @property
    def nbytes(self) -> int:
        kept = (*self.inputs, self.expected, self.reference)
        return sum(one.nbytes for one in kept if one is not None)


ExactInputs = Callable[[Operation, int, Matmul, bool], ExactCase | None]
"""(operation, seed, matmul, round_once) -> a case, or None where the operation has no exact inputs.
With `round_once` every bit of the expectation is known where the operation allows it; without it,
there is always a reference (for stochastically rounded results)."""

LADDER = (1, 3, 16)
"""Magnitudes of integers below the largest exact one: measured on emulations at K = 4096, ±3 passes
a float16 accumulator and inputs cast to fp8, ±16 shows the first, the largest shows both."""

_LARGE = 120
"""Minimum magnitude in the rows of A and columns of B of s8 that hold large numbers: float32 sums
of their products are inexact from K = 1100 on (120 to 127 are 123.5 on average, squared). Up to K =
1024 those of any s8 numbers are."""

_MOST_STEPS = 16
"""Largest ratio of C to the unit of the product's sums: four bits of the accumulator that
:func:`gemmetry.numerics.inputs.exact_integer_limit` leaves free, except in the rarest sums."""

PROMOTED = (5, 8)
"""Limits of the numbers of :func:`promoted`: 128·8² is 2¹³, and all fp8 formats can represent
them."""

_BLOCK = 1 << 20
"""Elements that a thread finishes at a time."""

_SPAN_OF_BLOCKS = 64
"""Ratio of the largest to the smallest product of two scale factors of
:func:`gemmetry.numerics.inputs.make_inputs`."""


def integers(
    operation: Operation, seed: int, matmul: Matmul, round_once: bool = True
) -> ExactCase | None:
    """Every operand uniform in ±[1, r] with the largest exact r
    (:func:`gemmetry.numerics.inputs.exact_integer_limit`); None where even ±1 is not exact. For s8
    some lines of A and B are large and have one sign (:func:`_to_the_ends`)."""
    if exact_integer_limit(operation) == 0:
        return None
    inputs = make_inputs(operation, distribution="integers", seed=seed)
    if operation.signature.lhs.is_integer:
        inputs = _to_the_ends(operation, inputs)
    return case_of(operation, inputs, matmul, round_once)


def integers_up_to(
    limit: int, operation: Operation, seed: int, matmul: Matmul, round_once: bool = True
) -> ExactCase | None:
    """Case of :func:`integers` with A and B in ±[1, limit]; None where the result is inexact."""
    if limit > exact_integer_limit(operation):
        return None
    lhs, rhs = (random_integers(spec, limit, seed) for spec in operation.inputs[:2])
    return case_of(operation, with_others(operation, seed, lhs, rhs), matmul, round_once)


def promoted(
    operation: Operation, seed: int, matmul: Matmul, round_once: bool = True
) -> ExactCase | None:
    """Positive fp8 numbers whose whole sum needs more than the 14 bits that Hopper's fp8 sums keep,
    while sums of 128 products, after which a kernel must move them to the accumulator, need no more
    (sources in :mod:`gemmetry.numerics.bounds`). None where they do not apply."""
    s, k, (low, high) = operation.signature, operation.matmul_shape.k, PROMOTED
    # Sums of blocks, which have factors from 1/16 to 4, are exact in 24 bits of that range.
    largest = high**2 * k * max(1.0, abs(s.alpha)) * (1 if s.blocks is None else _SPAN_OF_BLOCKS)
    if not (s.lhs.is_fp8 and s.rhs.is_fp8) or s.accumulator.significand_bits < 24:
        return None
    typical = ((low + high) / 2) ** 2 * k
    if typical < 2**15 or largest > min(s.result.maximum, 2**24):
        return None
    drawn = []
    for spec in operation.inputs[:2]:
        rng = np.random.default_rng([seed % 2**64, spec.role == "lhs", *spec.shape])
        values = rng.integers(low, high, spec.storage_shape, dtype=np.int32, endpoint=True)
        drawn.append(quantize(values.astype(np.float32), spec.dtype))
    inputs = with_others(operation, seed, *drawn)
    return exact_case(operation, inputs, exact_product(operation, inputs, matmul), round_once)


_Magnitude = Callable[[Operation, Sequence[Array]], Floats | float]


def case_of(
    operation: Operation,
    inputs: tuple[Array, ...],
    matmul: Matmul,
    round_once: bool = True,
    *,
    signs_are_random: bool = True,
) -> ExactCase:
    """The case of integers of either sign on which no sum rounds."""
    product = exact_product(operation, inputs, matmul)
    k = operation.matmul_shape.k
    # With random signs, partial sums in any order are a random walk, below 8√K except with
    # probability 2·exp(-32) each (Hoeffding's inequality).
    terms = min(float(k), 8.0 * math.sqrt(k)) if signs_are_random else float(k)

    def largest_partial(operation: Operation, inputs: Sequence[Array]) -> float:
        largest = [max(map(abs, finite_range(array))) for array in inputs[:2]]
        return terms * largest[0] * largest[1]

    return exact_case(operation, inputs, product, round_once, largest_partial)


def exact_case(
    operation: Operation,
    inputs: tuple[Array, ...],
    product: Floats,
    round_once: bool,
    largest_partial: _Magnitude | None = None,
    terms: int = 0,
) -> ExactCase:
    """The case of `inputs`, whose product is exact in the accumulator.

    Args:
        largest_partial: the largest partial sum of `product`; None: no partial sum exceeds it.
        terms: number of terms of such a sum; 0: K.
    """
    s, tensors = operation.signature, logical_tensors(operation, inputs)
    if s.lhs.is_integer or (round_once and rounds_once(operation)):
        if s.alpha == 1 and s.accumulator.significand_bits in range(1, 25):
            # One rounding from float32 is several times faster than from float64.
            product = product.astype(np.float32, copy=False)
        value = apply_epilogue(operation, cast(Float64Array, product), tensors)
        return ExactCase(inputs, quantize(value, s.result), None)
    wide = to_float64(product)
    magnitude = np.abs(wide)
    folded_terms = 0
    if not _folds_exactly(operation, tensors):
        folded_terms = terms or operation.matmul_shape.k
        if largest_partial is not None:
            magnitude = np.maximum(magnitude, largest_partial(operation, inputs))
    reference = with_epilogue(operation, wide, magnitude, tensors)
    if s.epilogue == (EpilogueStep.GELU,) and len(inputs) == 2 and s.alpha == 1:
        # An allowance for rounding a representable product would hide gelu by tanh in 16 bits.
        assert reference.extra_rounding is not None
        is_kept = to_float64(quantize(wide, s.result)) == wide
        extra = np.where(is_kept, 0.0, reference.extra_rounding)
        reference = replace(reference, extra_rounding=extra)
    return ExactCase(inputs, None, reference, folded_terms)


def _folds_exactly(operation: Operation, tensors: Mapping[str, Array]) -> bool:
    """Whether sums of products of integers, times powers of two, stay exact where factors are
    multiplied into A or B, and where they begin with beta·C: factors are powers of two, and beta·C
    is a small multiple of the sum's unit."""
    s = operation.signature
    scales = (np.abs(to_float64(tensors[role])) for role in tensors if role.startswith("scale_"))
    if any((np.frexp(scale)[0] != 0.5).any() for scale in scales):
        return False
    if not is_power_of_two_or_zero(s.alpha):
        return False
    steps = s.beta / s.alpha if s.alpha else 0.0
    return steps.is_integer() and abs(steps) <= _MOST_STEPS


def with_others(operation: Operation, seed: int, lhs: Array, rhs: Array) -> tuple[Array, ...]:
    """A and B, and integers for the other operands."""
    if len(operation.inputs) == 2:
        return lhs, rhs
    return lhs, rhs, *make_inputs(operation, distribution="integers", seed=seed)[2:]


def random_integers(
    spec: TensorSpec, limit: int, seed: int, scales: Float64Array | None = None
) -> Array:
    """Integers in ±[1, limit], times `scales` (powers of two, in logical shape)."""
    rng = np.random.default_rng([seed % 2**64, *spec.shape])
    drawn = np.int32 if limit < 2**31 else np.int64
    values = rng.integers(-limit, limit, spec.storage_shape, dtype=drawn)
    wide = np.float32 if limit <= 2**24 else np.float64
    stored = None if scales is None else to_logical(np.broadcast_to(scales, spec.shape), spec)
    result = np.empty(spec.storage_shape, numpy_dtype(spec.dtype))

    def finish(start: int) -> None:
        rows = slice(start, start + step)
        part = values[rows]
        part += part >= 0
        codes: Floats = part.astype(wide)
        if stored is not None:
            codes *= stored[rows].astype(wide)
        result[rows] = quantize(codes, spec.dtype)

    step = max(1, _BLOCK * values.shape[0] // max(1, values.size))
    deque(in_order(finish, range(0, values.shape[0], step)), maxlen=0)
    return result


def _to_the_ends(operation: Operation, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """s8 inputs with large positive numbers in every third row of A and column of B, and large
    negative ones and -128 in every third: sums then need all bits of s32 that K leaves room for,
    pairs of products more than 16, and -128 has no counterpart to be negated to."""
    if operation.matmul_shape.k * 128**2 + 3 * 127 > 2**31 - 1:
        return inputs
    changed = list(inputs)
    for i, spec in enumerate(operation.inputs[:2]):
        values = to_logical(inputs[i], spec).astype(np.int16)
        large = _LARGE + np.abs(values) % (128 - _LARGE)
        lowest = np.where(values > 0, -128, -large)
        kind = np.arange(spec.shape[line_axis(spec)]) % 3
        kind = kind[:, np.newaxis] if spec.role == "lhs" else kind
        values = np.select([kind == 1, kind == 2], [large, lowest], values)
        changed[i] = to_storage(values.astype(inputs[i].dtype), spec)
    return tuple(changed)


def line_axis(spec: TensorSpec) -> int:
    """The axes along which rows of A and columns of B are counted."""
    return -2 if spec.role == "lhs" else -1


CASE_CACHE_BYTES = 3 * 2**29
"""Memory limit of exact inputs and results that are kept for the next dispatch of the same
operation: the three cases of an 8192³ bf16 product take 1.2e9 bytes."""


class CaseCache:
    """Exact cases, up to :data:`CASE_CACHE_BYTES`.

    Those of other operations are dropped first, the least recent before the others. Where the cases
    of one operation alone exceed the limit, its later ones are not kept: each dispatch needs all of
    them in the same order, so that every case would be dropped before it is needed again.
    """

    def __init__(self) -> None:
        self._cases: OrderedDict[tuple[object, ...], ExactCase | None] = OrderedDict()
        self._held_bytes = 0

    def get(
        self, operation: Operation, key: tuple[object, ...], make: Callable[[], ExactCase | None]
    ) -> ExactCase | None:
        """The case of `operation` and `key`, created if it is not cached."""
        whole = (operation, *key)
        if whole in self._cases:
            self._cases.move_to_end(whole)
            return self._cases[whole]
        case = make()
        size = _case_bytes(case)
        while self._held_bytes + size > CASE_CACHE_BYTES:
            other = next((one for one in self._cases if one[0] != operation), None)
            if other is None:
                break
            self._held_bytes -= _case_bytes(self._cases.pop(other))
        if self._held_bytes + size <= CASE_CACHE_BYTES:
            self._cases[whole] = case
            self._held_bytes += size
        return case


def _case_bytes(case: ExactCase | None) -> int:
    return 0 if case is None else case.nbytes


_FACTORS = (0, 1)
"""Positions of A and B, whose elements each affect a whole line of the result."""


@dataclass(frozen=True)
class ChangeStep:
    """A change, and the inputs that it applies to."""

    change: InputChange
    before: tuple[Array, ...]
    """Inputs with all changes of earlier operands; those of its own operand are left out, as
    `change` holds the new lines."""
    seen: InputChange
    """The lines of the result to check: those of `change`, or for a scalar factor some other
    line."""
    edits: Sequence[Edit]
    """Edits that make the change."""
    undoing: Sequence[Edit]
    """Edits that restore the inputs before all changes."""

    @property
    def inputs(self) -> tuple[Array, ...]:
        """The inputs from which :attr:`seen` is computed."""
        if self.change.lines:
            return self.before
        changed = list(self.before)
        changed[self.change.place] = self.change.contents
        return tuple(changed)


def changes_of(operation: Operation) -> list[tuple[ChangeKind, int]]:
    """The kinds of changes, with their operands (positions in ``operation.inputs``), the most
    informative first: signs in each operand, then an exchange in each that preserves sums; further
    kinds in A and B."""
    places = range(len(operation.inputs))
    lined = changeable(operation)
    ones = [(ChangeKind.ONE_ELEMENT, place) for place in _FACTORS]
    # A change of a single element of an addend may be rounded away.
    negated = [(ChangeKind.NEGATED, place) for place in places if place not in _FACTORS]
    exchanges = [(kind, place) for place in lined for kind in _exchanges(operation, place)]
    further = [
        (kind, place)
        for kind in (ChangeKind.LAST_ELEMENT, ChangeKind.SWAPPED, ChangeKind.NEGATED)
        for place in _FACTORS
        if _is_worth_it(operation, kind, place)
    ]
    return list(dict.fromkeys((*ones, *negated, *exchanges, *further)))


def draw_steps(
    operation: Operation,
    inputs: Sequence[Array],
    wanted: Sequence[tuple[ChangeKind, int]],
    rng: np.random.Generator,
) -> list[ChangeStep]:
    """The changes of `wanted` at places drawn from `rng`, operand by operand.

    Args:
        inputs: host arrays of ``operation.inputs``, in storage shapes; not modified.
    """
    lined, current = changeable(operation), list(inputs)
    steps: list[ChangeStep] = []

    def add(change: InputChange, seen: InputChange) -> None:
        undo = undoing(operation, inputs, change)
        steps.append(ChangeStep(change, before, seen, edits(operation, change), undo))

    # Scalar factors come last: the rest of the result is unknown after them.
    for place in sorted({place for _, place in wanted}, key=lambda p: (p not in lined, p)):
        before = tuple(current)
        if place not in lined:
            change = negated_factor(operation, current, place)
            add(change, unchanged_line(operation, current, 1, rng))
            current[place] = change.contents
            continue
        current[place] = np.array(current[place])
        kinds = [kind for kind in ChangeKind if (kind, place) in wanted]
        everywhere = place not in _FACTORS
        for kind in kinds:
            drawn: tuple[InputChange, ...] = ()
            if kind is ChangeKind.CROSSED:
                drawn = draw_exchange(operation, current, place, rng, everywhere=everywhere)
                drawn = drawn if ChangeKind.EXCHANGED in kinds else drawn[:1]
            elif kind is not ChangeKind.EXCHANGED:
                drawn = (draw_change(operation, current, kind, place, rng),)
            for change in drawn:
                add(change, change)
                for edit in steps[-1].edits:
                    current[place][edit.index] = edit.contents
    return steps


def _exchanges(operation: Operation, place: int) -> tuple[ChangeKind, ...]:
    if has_crossings(operation, place) and not _is_images(operation, place):
        return ChangeKind.CROSSED, ChangeKind.EXCHANGED
    count = _line_count(operation, place)
    if operation.inputs[place].elements > count:
        return (ChangeKind.ELEMENTS_SWAPPED,)
    return (ChangeKind.SWAPPED,) if count > 1 else ()


def _is_worth_it(operation: Operation, kind: ChangeKind, place: int) -> bool:
    if kind is ChangeKind.SWAPPED:
        return _line_count(operation, place) > 1
    return kind is not ChangeKind.LAST_ELEMENT or not _is_images(operation, place)


def _line_count(operation: Operation, place: int) -> int:
    return operation.inputs[place].shape[axis_of_lines(operation, place)]


def _is_images(operation: Operation, place: int) -> bool:
    """Whether lines are images of a convolution, each of which requires a whole product."""
    return place == 0 and isinstance(operation.shape, Conv2dShape)
