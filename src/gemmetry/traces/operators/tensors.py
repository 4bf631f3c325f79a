"""Tensors among an operator's arguments, as recorded in a trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gemmetry.formats.events import MOST_ELEMENTS, OperatorArguments


class Tensor(NamedTuple):
    """Shape and element type, the latter as spelled in the trace; "" where it is missing."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def input_tensors(arguments: OperatorArguments) -> list[list[Tensor]]:
    """The tensors of each argument, in order: several for a list of tensors, [] for other arguments
    (scalars, and tensors without dimensions, which traces do not distinguish)."""
    shapes, dtypes = decoded_list(arguments.shapes), decoded_list(arguments.dtypes)
    result = []
    for place, shape in enumerate(shapes):
        recorded = dtypes[place] if place < len(dtypes) else ""
        dtype = recorded if isinstance(recorded, str) and recorded != "TensorList" else ""
        result.append([Tensor(tuple(one), dtype) for one in _shapes(shape)])
    return result


def _shapes(shape: Any) -> list[Sequence[int]]:
    """The sizes of a tensor, or of each tensor of a list."""
    several = isinstance(shape, list) and bool(shape) and isinstance(shape[0], list)
    return [one for one in (shape if several else [shape]) if one and _is_shape(one)]


def _is_shape(sizes: Any) -> bool:
    if not isinstance(sizes, list) or not all(type(n) is int and n >= 0 for n in sizes):
        return False
    return math.prod(sizes) <= MOST_ELEMENTS


def decoded_list(text: str) -> list[Any]:
    """A list that is JSON in the trace; empty where it is not a list."""
    try:
        found = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return []
    return found if isinstance(found, list) else []
