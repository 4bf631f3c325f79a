"""Draws random changes of inputs: their positions and new contents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmetry.domain.operation import Operation
from gemmetry.numerics.changes import ChangeKind, InputChange, line_axis, negative
from gemmetry.numerics.references import to_logical
from gemmetry.numerics.storage import Array, same_bytes, to_float64

_TRIES = 8
"""Number of places examined to find one whose change is visible, such as a large number."""

_TRIES_OF_ONE = 32
"""The same for a place at a suitable distance: one in five distances has no factor in common with
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
    if kind is ChangeKind.ELEMENTS_SWAPPED and flat.size > 1:
        one, other = _unequal_pair(flat, rng)
        flat[[one, other]] = flat[[other, one]]
    else:
        kind = ChangeKind.NEGATED
        line = negative(line)
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
        ones = np.array([_largest_of_a_few(crossing[0, row], rng)])
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


def _largest_of_a_few(flat: Array, rng: np.random.Generator) -> int:
    places = rng.integers(flat.size, size=_TRIES)
    return int(places[int(np.argmax(np.abs(to_float64(flat[places]))))])


def _unequal_pair(flat: Array, rng: np.random.Generator) -> tuple[int, int]:
    one = int(rng.integers(flat.size))
    others = (one + rng.integers(1, flat.size, size=_TRIES)) % flat.size
    apart = np.abs(to_float64(flat[others]) - to_float64(flat[one : one + 1]))
    return one, int(others[int(np.argmax(apart))])
