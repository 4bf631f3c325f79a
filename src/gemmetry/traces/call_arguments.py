"""Sizes of messages and bandwidths of collectives, as nccl-tests defines them.

``algbw`` = S / t and ``busbw`` = algbw · factor, in 10⁹ bytes/s. S is the size of the whole
message: the output of every rank in an all-gather, the input of every rank in a reduce-scatter, the
whole buffer of one rank in an all-to-all. Sources: NVIDIA/nccl-tests a0b82b2,
``doc/PERFORMANCE.md`` and the ``...GetBw`` functions of ``src/*.cu``; for all-to-alls with unequal
parts facebookresearch/param 1e115ff, ``et_replay/comm/profiler_trace_analysis.py``.

Decodes the arguments of one call of an operator that a trace records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gemmetry.formats.events import MOST_ELEMENTS, OperatorArguments
from gemmetry.traces.joins import decoded_list

_PER_RANK_SHARE = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_ONCE = ("broadcast", "reduce", "send", "recv", "send_recv")

_SPELLINGS: dict[str, tuple[int, str]] = {
    "Byte": (1, "unsigned char;uint8;u8"),
    "Char": (1, "signed char;char;int8;s8"),
    "Short": (2, "short;short int;int16;s16"),
    "Int": (4, "int;int32;s32"),
    "Long": (8, "long;long int;long long;int64;s64"),
    "UInt16": (2, "unsigned short;uint16;u16"),
    "UInt32": (4, "unsigned int;uint32;u32"),
    "UInt64": (8, "unsigned long;uint64;u64"),
    "Half": (2, "half;float16;f16"),
    "Float": (4, "float;float32;f32;tf32"),
    "Double": (8, "double;float64;f64"),
    "BFloat16": (2, "bfloat16;bf16"),
    "ComplexHalf": (4, "complex<half>;complex<c10::half>;complex32"),
    "ComplexFloat": (8, "complex<float>;complex64;c64"),
    "ComplexDouble": (16, "complex<double>;complex128;c128"),
    "Bool": (1, "bool"),
    "QInt8": (1, "qint8"),
    "QUInt8": (1, "quint8"),
    "QInt32": (4, "qint32"),
    "QUInt4x2": (1, "quint4x2"),
    "QUInt2x4": (1, "quint2x4"),
    "Bits1x8": (1, "bits1x8"),
    "Bits2x4": (1, "bits2x4"),
    "Bits4x2": (1, "bits4x2"),
    "Bits8": (1, "bits8"),
    "Bits16": (2, "bits16"),
    "Float8_e5m2": (1, "float8_e5m2;e5m2"),
    "Float8_e4m3fn": (1, "float8_e4m3fn;e4m3"),
    "Float8_e5m2fnuz": (1, "float8_e5m2fnuz;e5m2fnuz"),
    "Float8_e4m3fnuz": (1, "float8_e4m3fnuz;e4m3fnuz"),
    "Float8_e8m0fnu": (1, "float8_e8m0fnu;e8m0"),
    "Float4_e2m1fn_x2": (1, "float4_e2m1fn_x2;e2m1"),
}
"""PyTorch's name of an element type (``c10/core/ScalarType.h``) -> bytes and other spellings: those
of C++ types in "Input type", and of ``domain/operation.py``."""

ELEMENT_BYTES: dict[str, int] = {name: size for name, (size, _) in _SPELLINGS.items()}

_NAMES: dict[str, str] = {
    spelling: name
    for name, (_, others) in _SPELLINGS.items()
    for spelling in (name.lower(), *others.split(";"))
}


def element_type(spelling: str | None) -> str | None:
    """PyTorch's name of an element type in any spelling; unknown names are returned unchanged, None
    and "" as None."""
    if not spelling:
        return None
    return _NAMES.get(spelling.removeprefix("c10::").lower(), spelling)


def message_elements(
    op: str | None, in_elements: int | None, out_elements: int | None, group_size: int | None
) -> int | None:
    """Elements of the whole message S, from one rank's input and output.

    It is the output of an all-gather or gather, the input of a reduce-scatter or scatter, the
    larger of both otherwise. Where a trace records only one rank's part, the group's size completes
    it; None where that is missing too.
    """
    if op in ("all_gather", "gather"):
        whole, part = out_elements, in_elements
    elif op in ("reduce_scatter", "scatter"):
        whole, part = in_elements, out_elements
    else:
        recorded = [count for count in (in_elements, out_elements) if count is not None]
        return max(recorded) if recorded and op else None
    if whole is not None and whole >= (part or 0):
        return whole
    return part * group_size if part is not None and group_size else None


def bus_factor(op: str | None, group_size: int | None) -> float | None:
    """The factor from algbw to busbw; None where the operation or the group size is not known.

    all_reduce 2(n-1)/n; all_gather, reduce_scatter, all_to_all, gather, scatter (n-1)/n;
    broadcast, reduce, send and receive 1 (nccl-tests, see above).
    """
    if op in _ONCE:
        return 1.0
    if not group_size or op is None:
        return None
    if op == "all_reduce":
        return 2 * (group_size - 1) / group_size
    return (group_size - 1) / group_size if op in _PER_RANK_SHARE else None


def exchanged_elements(
    elements: int, splits: Sequence[int], index: int | None, group_size: int
) -> float:
    """Number of a rank's `elements` in an all-to-all that belong to other ranks.

    Args:
        splits: sizes of the parts by rank of the group; () means equal parts.
        index: index of the rank in its group; None if not known (an equal part is subtracted).
    """
    if len(splits) == group_size and index is not None:
        return elements - splits[index]
    return elements * (group_size - 1) / group_size


def gigabytes_per_second(size: float | None, duration_ns: int) -> float | None:
    """10⁹ bytes/s, which is bytes/ns; None without a size or a duration."""
    return None if not size or duration_ns <= 0 else size / duration_ns


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
