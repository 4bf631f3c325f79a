"""Names of operations and dispatches, and their inverse. The grammar is in docs/names.md.

operation = kind "_" shape { "_" geometry } "_" operand "_" operand "_" operand { "_" modifier }
dispatch  = operation "_" configuration
"""

from __future__ import annotations

import re
from functools import lru_cache

from gemmetry.domain.errors import NameSyntaxError, RequestError
from gemmetry.domain.operation import (
    DTYPES,
    SCALE_FORMATS,
    Conv2dShape,
    DType,
    EpilogueStep,
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
    Signature,
    check_shape,
    parse_scaling,
)

_DTYPE_PATTERN = "|".join(sorted(DTYPES, key=len, reverse=True))
_OPERAND = re.compile(rf"({_DTYPE_PATTERN})(nhwc|hwcf|t|n)")
_NUMBER = r"m?\d+(?:p\d+)?(?:e(?:m?\d+))?"
_MODIFIER = re.compile(
    rf"slices(?P<slices>\d{{1,12}})|acc(?P<acc>{_DTYPE_PATTERN})|scale(?P<scale>tensor|row)"
    rf"|(?P<block>vs\d{{1,6}}(?:x\d{{1,6}})?)|(?P<factors>{'|'.join(map(str, SCALE_FORMATS))})"
    rf"|alpha(?P<alpha>{_NUMBER})|beta(?P<beta>{_NUMBER})"
    rf"|(?P<step>{'|'.join(EpilogueStep)})",
    re.ASCII,
)
_RANK = {
    "slices": 0, "acc": 1, "scale": 2, "block": 2, "factors": 3, "alpha": 4, "beta": 5, "step": 6,
}  # fmt: skip
_REPEATED = ("block", "step")
"""Modifiers that may follow one of their kind: blocks of B, fused steps."""
_SIZES = {
    OperationKind.MATMUL: "MxNxK",
    OperationKind.MATMUL_SPLITK: "MxNxK",
    OperationKind.BATCH_MATMUL: "BxMxNxK",
    OperationKind.CONV2D: "NxHxWxC_RxSxF",
}


def parse_number(text: str) -> float:
    """The inverse of :func:`print_number`."""
    return float(text.replace("m", "-").replace("p", "."))


def parse_operation(name: str) -> Operation:
    """The operation named `name`; the inverse of :func:`operation_name`.

    Raises:
        NameSyntaxError: the name does not parse, or something follows the operation.
    """
    operation, configuration = split_dispatch_name(name)
    if configuration:
        raise _syntax(name, f"{configuration!r} follows the operation")
    return operation


def split_dispatch_name(name: str) -> tuple[Operation, str]:
    """Split a dispatch's name into its operation and its configuration's name ("" if absent).

    Raises:
        NameSyntaxError: the name does not begin with an operation, or its parts contradict each
            other.
    """
    kind = next((kind for kind in _KINDS if name.startswith(f"{kind}_")), None)
    if kind is None:
        known = ", ".join(OperationKind)
        raise _syntax(name, f"it does not start with an operation kind ({known})")
    parts = name[len(kind) + 1 :].split("_")
    shape, used = _parse_shape(name, kind, parts)
    operands: list[tuple[DType, Layout]] = []
    for part in parts[used : used + 3]:
        match = _OPERAND.fullmatch(part)
        if match is None:
            raise _syntax(name, f"{part!r} is not an operand (dtype and layout, as in f16t)")
        operands.append((DTYPES[match[1]], Layout(match[2])))
    if len(operands) < 3:
        raise _syntax(name, "it needs three operands: A, B and C, as in f16t_f16t_f32t")
    used += 3
    modifiers, used = _parse_modifiers(name, parts, used)
    try:
        signature = _signature(kind, tuple(operands), modifiers)
        check_shape(signature, shape)
    except RequestError as error:
        raise _syntax(name, error.message) from None
    return Operation(signature, shape), "_".join(parts[used:])


_KINDS = sorted(OperationKind, key=len, reverse=True)
_Modifiers = tuple[tuple[str, str], ...]


@lru_cache(maxsize=4096)
def _signature(
    kind: OperationKind, operands: tuple[tuple[DType, Layout], ...], modifiers: _Modifiers
) -> Signature:
    values = {key: text for key, text in modifiers if key != "step"}
    blocks = "_".join(text for key, text in modifiers if key in ("block", "factors"))
    (lhs, lhs_layout), (rhs, rhs_layout), (result, result_layout) = operands
    return Signature(
        kind, lhs, rhs, result, lhs_layout, rhs_layout, result_layout,
        accumulator=DTYPES[values["acc"]] if "acc" in values else None,  # type: ignore[arg-type]
        split_k_slices=int(values.get("slices", "1")),
        scaling=parse_scaling(blocks or values.get("scale", "none")),
        alpha=parse_number(values.get("alpha", "1")),
        beta=parse_number(values.get("beta", "0")),
        epilogue=tuple(EpilogueStep(text) for key, text in modifiers if key == "step"),
    )  # fmt: skip


def _parse_shape(
    name: str, kind: OperationKind, parts: list[str]
) -> tuple[MatmulShape | Conv2dShape, int]:
    if kind is not OperationKind.CONV2D:
        rank = 4 if kind is OperationKind.BATCH_MATMUL else 3
        sizes = _sizes(name, kind, parts[0], rank)
        m, n, k = sizes[-3:]
        return MatmulShape(m, n, k, batch=sizes[0] if rank == 4 else 1), 1
    image = _sizes(name, kind, parts[0], 4)
    filters = _sizes(name, kind, parts[1] if len(parts) > 1 else "", 3)
    used, geometry = 2, list[int]()
    for word, usual in (("stride", [1, 1]), ("pad", [0, 0])):
        if is_given := len(parts) > used and parts[used].startswith(word):
            usual = _sizes(name, kind, parts[used].removeprefix(word), 2)
        used += is_given
        geometry += usual
    return Conv2dShape(*image, *filters, *geometry), used


def _sizes(name: str, kind: OperationKind, text: str, rank: int) -> list[int]:
    fields = text.split("x")
    if len(fields) != rank or not all(f.isascii() and f.isdigit() for f in fields):
        raise _syntax(name, f"{text!r} is not of the form {_SIZES[kind]} for {kind}")
    if any(len(f) > 12 for f in fields):
        raise _syntax(name, f"a size in {text!r} has more than 12 digits")
    return [int(f) for f in fields]


def _parse_modifiers(name: str, parts: list[str], used: int) -> tuple[_Modifiers, int]:
    found: list[tuple[str, str]] = []
    rank = -1
    while used < len(parts) and (match := _MODIFIER.fullmatch(parts[used])):
        key = str(match.lastgroup)
        if key == "factors" and not (found and found[-1][0] == "block"):
            break  # Only the word after a block is a format of factors.
        repeats = _RANK[key] == rank and not (key in _REPEATED and found[-1][0] == key)
        if _RANK[key] < rank or repeats:
            raise _syntax(name, f"{parts[used]!r} is out of order or appears twice")
        rank = _RANK[key]
        found.append((key, match[key]))
        used += 1
    return tuple(found), used


def _syntax(name: str, problem: str) -> NameSyntaxError:
    # Hostile names may be megabytes long; both ends of a message stay readable.
    if len(problem) > 300:
        problem = f"{problem[:200]} ... {problem[-90:]}"
    return NameSyntaxError(
        f"cannot read the name {name[:200]!r}: {problem}",
        hint="`gemmetry help names` explains the grammar; for example "
        "matmul_768x512x1024_f16t_f16t_f32t.",
    )
