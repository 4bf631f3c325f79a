"""What ``hipblaslt-bench`` and ``rocblas-bench`` print: a line of headings, and a line of values
for each solution (rocm-libraries, ``clients/common/include/argument_model.hpp``).

Both state column-major products. Such a product of m, n, k is in memory the row-major one of M = n,
N = m, K = k, whose operands change places. The time is the mean over the launches. rocblas-bench
does not state formats.
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from gemmetry.domain.operation import Layout, Operation
from gemmetry.formats.benchmarks import (
    ForeignFile,
    ForeignResult,
    ResultFormat,
    RowError,
    StatedOperation,
    factor,
    integer,
    milliseconds,
    plain_name,
    product,
)

_HEADER: Final = re.compile(
    r"\s*(?:\[\d+\]:)?(transA,transB,\S.*\b(?:hipblaslt|rocblas)-Gflops\b.*)"
)
_DEVICE: Final = re.compile(r"\s*Device ID \d+ : (?P<name>.+?)(?: gfx\S+)?\s*")
_SOLUTION: Final = re.compile(r"\s*--Solution name:\s*(?P<name>\S+)")
_BEST: Final = "Winner"
"""Before the best solution, which is listed once more."""

_FORMATS: Final = {
    "f64_r": "f64", "f32_r": "f32", "f16_r": "f16", "bf16_r": "bf16", "i8_r": "s8", "i32_r": "s32",
    "f8_r": "e4m3", "bf8_r": "e5m2", "f8_fnuz_r": "e4m3fnuz", "bf8_fnuz_r": "e5m2fnuz",
}  # fmt: skip
"""hipBLASLt's name -> ours."""
_SINGLE: Final = ("f32_r", "c_f32_r")
_REDUCED: Final = ("xf32_r", "c_xf32_r")
"""Names of the computation in f32, and of that in TF32."""
_PLAIN: Final = {
    "grouped_gemm": "groups", "activation_type": "an activation", "bias_vector": "a bias",
    "scaleA": "factors of A", "scaleB": "factors of B", "scaleC": "factors of C",
    "scaleD": "factors of D", "amaxD": "the largest element",
}  # fmt: skip
"""Columns that state more than a plain product -> what that is."""
_NOTHING: Final = ("", "0", "none", "false")


def _read(path: Path, text: str, stated: StatedOperation) -> ForeignFile:
    found = ForeignFile()
    header: list[str] = []
    device = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _HEADER.fullmatch(line):
            header = match[1].strip().lower().split(",")
        elif line.startswith(_BEST):
            break
        elif match := _DEVICE.fullmatch(line):
            device = match["name"]
        elif (match := _SOLUTION.match(line)) and found.results:
            found.results[-1] = replace(found.results[-1], configuration=plain_name(match["name"]))
        elif header and line.count(",") > 1:
            try:
                found.results.append(_result(header, next(csv.reader([line])), device, stated))
            except (RowError, csv.Error) as error:
                found.left_out(f"{path.name}:{number}", error)
    return found


def _result(
    header: list[str], cells: list[str], device: str, stated: StatedOperation
) -> ForeignResult:
    if len(cells) != len(header):
        raise RowError(f"it has {len(cells)} cells, and the header {len(header)}")
    row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
    for column, what in _PLAIN.items():
        if row.get(column.lower(), "").lower() not in _NOTHING:
            raise RowError(f"it has {what} ({column} {row[column.lower()]}), not a plain product")
    return ForeignResult(
        operation=_operation(row, stated), configuration="default", statistic="mean",
        time_ns=milliseconds(row.get("us"), "us", "microseconds"), device=device,
    )  # fmt: skip


def _operation(row: dict[str, str], stated: StatedOperation) -> Operation:
    n, m, k = (integer(row.get(name), name) for name in "mnk")
    batch = integer(row.get("batch_count") or 1, "batch_count")
    layouts = _layout(row, "transB"), _layout(row, "transA"), Layout.ROW
    if "a_type" not in row:
        signature = stated.at(m, n, k, batch).signature
        formats = signature.lhs.name, signature.rhs.name, signature.result.name
        return product((m, n, k, batch), formats, layouts)
    a, b, c, result = (_format(row, f"{name}_type") for name in "abcd")
    alpha, beta = (factor(row, name, usual) for name, usual in (("alpha", 1.0), ("beta", 0.0)))
    if beta and c != result:
        raise RowError(f"C is {c} and D {result}: they are of one format here")
    return product((m, n, k, batch), (b, a, result), layouts, alpha=alpha, beta=beta)


def _format(row: dict[str, str], column: str) -> str:
    name = row.get(column, "")
    if name not in _FORMATS:
        raise RowError(f"{column} is {name!r}, which is no format that is known here")
    computed = row.get("compute_type", _SINGLE[0])
    if name == "f32_r" and column in ("a_type", "b_type"):
        if computed in _REDUCED:
            return "tf32"
        if computed not in _SINGLE:
            raise RowError(f"the product is computed in {computed}")
    return _FORMATS[name]


def _layout(row: dict[str, str], column: str) -> Layout:
    """Of the operand of the row-major product: one that is not transposed has rows of K elements,
    or of N."""
    text = row.get(column.lower(), "")
    if text not in ("N", "T", "C"):
        raise RowError(f"{column} is {text!r}, not N or T")
    return Layout.ROW if text == "N" else Layout.COLUMN


FORMAT = ResultFormat(
    name="hipblaslt_bench",
    summary="tables of hipblaslt-bench or rocblas-bench",
    recognises=lambda text: any(_HEADER.fullmatch(line) for line in text.splitlines()),
    read=_read,
)
