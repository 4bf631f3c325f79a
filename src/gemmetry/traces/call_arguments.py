"""Decodes the arguments of one call of an operator that a trace records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from gemmetry.formats.events import MOST_ELEMENTS, OperatorArguments
from gemmetry.traces.collectives.bandwidth import ELEMENT_BYTES, element_type
from gemmetry.traces.operators.tensors import decoded_list

_MOST_DIMENSIONS = 64
"""PyTorch's own limit."""

_SCALAR_BYTES = 4
"""Bytes of a Python number among the arguments, as TraceLens counts them."""

_TRUE = ("True", "true")


class MissingArgumentError(Exception):
    """The arguments do not specify what the call does, or are inconsistent."""


class Amounts(NamedTuple):
    """What a call computes and moves."""

    parameters: tuple[tuple[str, Any], ...]
    flops: int
    bytes: int | None
    dtype: str | None
    """Type that the call computes in, as spelled in the trace."""


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments by position; methods raise :class:`MissingArgumentError` where they are missing."""

    name: str
    shapes: list[Any]
    dtypes: list[Any]
    strides: list[Any]
    values: list[str]

    @staticmethod
    def decoded(name: str, arguments: OperatorArguments) -> Call:
        """A call of the operator `name`."""
        values = decoded_list(arguments.values)
        return Call(
            name,
            decoded_list(arguments.shapes),
            decoded_list(arguments.dtypes),
            decoded_list(arguments.strides),
            [value if isinstance(value, str) else "" for value in values],
        )

    def has(self, place: int) -> bool:
        """Whether there is a tensor with dimensions at `place`."""
        return (
            place < len(self.shapes)
            and isinstance(found := self.shapes[place], list)
            and found != []
        )

    def shape(self, place: int) -> tuple[int, ...]:
        """Sizes of a tensor."""
        return _sizes(self.shapes[place] if place < len(self.shapes) else None)

    def stride(self, place: int) -> tuple[int, ...] | None:
        """Strides of a tensor, in elements; None where they are missing."""
        found = self.strides[place] if place < len(self.strides) else None
        if not isinstance(found, list) or len(found) > _MOST_DIMENSIONS:
            return None
        known = all(type(size) is int and abs(size) < 2**63 for size in found)
        return tuple(found) if known else None

    def dtype(self, place: int) -> str | None:
        """Type of a tensor, as spelled in the trace."""
        found = self.dtypes[place] if place < len(self.dtypes) else None
        return found if isinstance(found, str) and found else None

    def width(self, place: int) -> int | None:
        """Bytes of an element; None where the type is missing."""
        dtype = self.dtype(place)
        if dtype == "Scalar":
            return _SCALAR_BYTES
        return ELEMENT_BYTES.get(element_type(dtype) or "")

    def value(self, place: int) -> str:
        """A value that is not a tensor, as written in the trace; "" where it is missing."""
        return self.values[place] if place < len(self.values) else ""

    def number(self, place: int) -> int:
        """An integer."""
        return _integer(self.value(place))

    def real(self, place: int) -> float:
        """A number; 0 where it is missing."""
        try:
            return float(self.value(place) or 0)
        except ValueError:
            raise MissingArgumentError from None

    def flag(self, place: int) -> bool:
        """A boolean; false where it is missing."""
        return self.value(place) in _TRUE

    def flags(self, place: int, count: int) -> tuple[bool, ...]:
        """`count` booleans; all true where they are missing."""
        text = self.value(place)
        if not text:
            return (True,) * count
        found = tuple(part in _TRUE for part in _parts(text))
        if len(found) != count:
            raise MissingArgumentError
        return found

    def list_of_numbers(self, place: int) -> tuple[int, ...]:
        """Integers: ``[14, 14]``."""
        parts = _parts(self.value(place))
        if len(parts) > _MOST_DIMENSIONS:
            raise MissingArgumentError
        return tuple(map(_integer, parts))

    def numbers(self, place: int, count: int, usual: int) -> tuple[int, ...]:
        """`count` integers; a single one stands for all of them, none for `usual`."""
        found = self.list_of_numbers(place) if self.value(place) else ()
        if len(found) < 2:
            return (found or (usual,)) * count
        if len(found) != count:
            raise MissingArgumentError
        return found


def elements(shape: tuple[int, ...]) -> int:
    """The number of elements of a tensor.

    Raises:
        MissingArgumentError: the sizes are impossible.
    """
    count = math.prod(shape)
    if count > MOST_ELEMENTS or min(shape, default=0) < 0:
        raise MissingArgumentError
    return count


def _sizes(found: Any) -> tuple[int, ...]:
    if not isinstance(found, list) or len(found) > _MOST_DIMENSIONS:
        raise MissingArgumentError
    if not all(type(size) is int and 0 <= size <= MOST_ELEMENTS for size in found):
        raise MissingArgumentError
    return tuple(found)


def _parts(text: str) -> list[str]:
    if not text.startswith("[") or not text.endswith("]"):
        raise MissingArgumentError
    inside = text[1:-1].strip()
    return [part.strip() for part in inside.split(",")] if inside else []


def _integer(text: str) -> int:
    # Longer digit strings are damage, and Python rejects the longest of them.
    try:
        found = int(text) if len(text) < 20 else None
    except ValueError:
        found = None
    if found is None or abs(found) > MOST_ELEMENTS:
        raise MissingArgumentError
    return found
