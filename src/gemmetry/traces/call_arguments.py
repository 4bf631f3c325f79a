"""Sizes of messages and bandwidths of collectives, as nccl-tests defines them.

``algbw`` = S / t and ``busbw`` = algbw · factor, in 10⁹ bytes/s. S is the size of the whole
message: the output of every rank in an all-gather, the input of every rank in a reduce-scatter, the
whole buffer of one rank in an all-to-all. Sources: NVIDIA/nccl-tests a0b82b2,
``doc/PERFORMANCE.md`` and the ``...GetBw`` functions of ``src/*.cu``; for all-to-alls with unequal
parts facebookresearch/param 1e115ff, ``et_replay/comm/profiler_trace_analysis.py``.

Decodes the arguments of one call of an operator that a trace records.
"""

from __future__ import annotations

from collections.abc import Sequence

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
