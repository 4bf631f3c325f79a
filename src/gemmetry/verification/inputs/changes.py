"""The sequence of small changes of inputs.

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gemmetry.domain.operation import Conv2dShape, Operation
from gemmetry.numerics.inputs import (
    ChangeKind,
    Edit,
    InputChange,
    changeable,
    draw_change,
    draw_exchange,
    edits,
    has_crossings,
    line_axis,
    negated_factor,
    unchanged_line,
    undoing,
)
from gemmetry.numerics.storage import Array

_ORDER = tuple(ChangeKind)

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
    """What makes the change."""
    undoing: Sequence[Edit]
    """What restores the inputs before all changes."""

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
    lined, steps = changeable(operation), []
    current = list(inputs)
    # Scalar factors come last: the rest of the result is unknown after them.
    for place in sorted({place for _, place in wanted}, key=lambda p: (p not in lined, p)):
        before = tuple(current)
        if place not in lined:
            change = negated_factor(operation, current, place)
            seen = unchanged_line(operation, current, 1, rng)
            steps.append(_step(operation, inputs, change, before, seen))
            current[place] = change.contents
            continue
        current[place] = np.array(current[place])
        kinds = sorted({kind for kind, of in wanted if of == place}, key=_ORDER.index)
        for change in _drawn(operation, current, kinds, place, rng):
            steps.append(_step(operation, inputs, change, before, change))
            for edit in steps[-1].edits:
                current[place][edit.index] = edit.contents
    return steps


def _step(
    operation: Operation,
    inputs: Sequence[Array],
    change: InputChange,
    before: tuple[Array, ...],
    seen: InputChange,
) -> ChangeStep:
    undo = undoing(operation, inputs, change)
    return ChangeStep(change, before, seen, edits(operation, change), undo)


def _drawn(
    operation: Operation,
    current: Sequence[Array],
    kinds: Sequence[ChangeKind],
    place: int,
    rng: np.random.Generator,
) -> Iterator[InputChange]:
    """Changes of an operand, which the caller applies to `current` one by one."""
    for kind in kinds:
        if kind is ChangeKind.CROSSED:
            crossed, exchanged = draw_exchange(
                operation, current, place, rng, everywhere=place not in _FACTORS
            )
            yield crossed
            if ChangeKind.EXCHANGED in kinds:
                yield exchanged
        elif kind is not ChangeKind.EXCHANGED:
            yield draw_change(operation, current, kind, place, rng)


def _exchanges(operation: Operation, place: int) -> tuple[ChangeKind, ...]:
    if has_crossings(operation, place) and not _is_images(operation, place):
        return ChangeKind.CROSSED, ChangeKind.EXCHANGED
    spec = operation.inputs[place]
    if np.prod(spec.shape) > _line_count(operation, place):
        return (ChangeKind.ELEMENTS_SWAPPED,)
    return (ChangeKind.SWAPPED,) if _line_count(operation, place) > 1 else ()


def _is_worth_it(operation: Operation, kind: ChangeKind, place: int) -> bool:
    if kind is ChangeKind.SWAPPED:
        return _line_count(operation, place) > 1
    return kind is not ChangeKind.LAST_ELEMENT or not _is_images(operation, place)


def _line_count(operation: Operation, place: int) -> int:
    return operation.inputs[place].shape[line_axis(operation, place)]


def _is_images(operation: Operation, place: int) -> bool:
    """Whether lines are images of a convolution, each of which requires a whole product."""
    return place == 0 and isinstance(operation.shape, Conv2dShape)
