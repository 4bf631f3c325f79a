"""Which small changes of inputs follow each other, and in which order.

A kernel that keeps answers knows its inputs again by something. Whatever that is, short of all
contents, one of the changes here leaves it as it was, and the answer is another one. Changes add
up: each is made where the ones before were, so that a launch differs from the one right before it
by one change alone. So it does not matter whether a kernel keeps all of its answers or the last.

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

What is left is a hash of all contents, or of so much of them that no few elements are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gemmetry.domain.operation import Conv2dShape, Operation
from gemmetry.numerics.changes import ChangeKind, InputChange, changeable, edits, line_axis
from gemmetry.numerics.drawing import (
    draw_change,
    draw_exchange,
    has_crossings,
    negated_factor,
    unchanged_line,
)
from gemmetry.numerics.storage import Array

_ORDER = tuple(ChangeKind)

_FACTORS = (0, 1)
"""Places of A and B, of which every element counts in a whole line of the result."""


@dataclass(frozen=True)
class ChangeStep:
    """A change, and what it is made in."""

    change: InputChange
    before: tuple[Array, ...]
    """Inputs with all changes of operands before this one; those of its own operand are left out,
    as `change` holds the new lines."""
    seen: InputChange
    """The lines of the result to look at: those of `change`, and for a single factor some other."""

    @property
    def inputs(self) -> tuple[Array, ...]:
        """What :attr:`seen` is computed from."""
        if self.change.lines:
            return self.before
        changed = list(self.before)
        changed[self.change.place] = self.change.contents
        return tuple(changed)


def changes_of(operation: Operation) -> list[tuple[ChangeKind, int]]:
    """What changes, and in which operand (a place in ``operation.inputs``), the most telling first:
    signs in each, then an exchange in each that keeps sums; in A and B further ones."""
    places = range(len(operation.inputs))
    lined = changeable(operation)
    ones = [(ChangeKind.ONE_ELEMENT, place) for place in _FACTORS]
    # Of what is added to the product one element may be rounded away.
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
    """The changes of `wanted` at places that `rng` chooses, those of an operand in turn.

    Args:
        inputs: host arrays of ``operation.inputs``, in storage shapes; they stay as they are.
    """
    lined, steps = changeable(operation), []
    current = list(inputs)
    # Last of all single factors: nothing is known of the rest of the result behind them.
    for place in sorted({place for _, place in wanted}, key=lambda p: (p not in lined, p)):
        before = tuple(current)
        if place not in lined:
            change = negated_factor(operation, current, place)
            steps.append(ChangeStep(change, before, unchanged_line(operation, current, 1, rng)))
            current[place] = change.contents
            continue
        current[place] = np.array(current[place])
        kinds = sorted({kind for kind, of in wanted if of == place}, key=_ORDER.index)
        for change in _drawn(operation, current, kinds, place, rng):
            steps.append(ChangeStep(change, before, change))
            for edit in edits(operation, change):
                current[place][edit.index] = edit.contents
    return steps


def _drawn(
    operation: Operation,
    current: Sequence[Array],
    kinds: Sequence[ChangeKind],
    place: int,
    rng: np.random.Generator,
) -> Iterator[InputChange]:
    """Changes of an operand, which the caller makes in `current` as they come."""
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
    """Whether lines are images of a convolution, each of which takes a whole product."""
    return place == 0 and isinstance(operation.shape, Conv2dShape)
