"""Tables of ``cutlass_profiler``, from ``--output`` or from what it prints (CUTLASS,
``tools/profiler/src/performance_report.cpp``).

The time is the mean over the launches that it timed.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

from gemmetry.domain.errors import Outcome
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

_BEGINNING: Final = "Problem,Provider,OperationKind,Operation,Disposition,Status"
"""Of the header. The columns of ``--tags`` stand before it."""
_NEEDED: Final = (
    "OperationKind", "Operation", "Disposition", "Status", "m", "n", "k", "A", "B", "C", "Runtime",
)  # fmt: skip
_LAYOUTS: Final = {"row": Layout.ROW, "column": Layout.COLUMN}
_KINDS: Final = ("", "gemm", "batched", "array", "universal")
"""Values of ``gemm_kind`` that are plain products: not planar complex, sparse or grouped ones."""
_OUTCOMES: Final = {
    "passed": Outcome.OK,
    "not_verified": Outcome.OK,
    "incorrect": Outcome.WRONG,
    "failed": Outcome.LAUNCH_ERROR,
    "invalid_problem": Outcome.UNSUPPORTED,
    "not_supported": Outcome.UNSUPPORTED,
    "not_run": Outcome.SKIPPED,
}
"""Disposition -> outcome."""
_CONFIGURES: Final = (
    "op_class", "cta_m", "cta_n", "cta_k", "cluster_m", "cluster_n", "cluster_k", "stages",
    "warps_m", "warps_n", "warps_k", "inst_m", "inst_n", "inst_k", "raster_order", "swizzle_size",
    "split_k_mode", "split_k_slices",
)  # fmt: skip


def _read(path: Path, text: str, stated: StatedOperation) -> ForeignFile:
    found = ForeignFile()
    header: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if _BEGINNING in line:
            header = line.split(",")
            if missing := [name for name in _NEEDED if name not in header]:
                found.left_out(f"{path.name}:{number}", f"no columns {', '.join(missing)}")
                header = []
        elif header and line.strip():
            try:
                found.results.append(_result(header, next(csv.reader([line]))))
            except (RowError, csv.Error) as error:
                found.left_out(f"{path.name}:{number}", error)
        else:
            continue
    return found


def _result(header: list[str], cells: list[str]) -> ForeignResult:
    if len(cells) != len(header):
        raise RowError(f"it has {len(cells)} cells, and the header {len(header)}")
    row = dict(zip(header, cells, strict=True))
    if row["OperationKind"] != "gemm":
        raise RowError(f"{row['OperationKind']} is not a plain matrix product")
    if row.get("gemm_kind", "") not in _KINDS:
        raise RowError(f"gemm_kind {row['gemm_kind']} is not a plain matrix product")
    if row["Disposition"] not in _OUTCOMES:
        raise RowError(f"its disposition {row['Disposition']!r} is unknown")
    outcome = _OUTCOMES[row["Disposition"]]
    if row["Status"] != "success" and outcome is Outcome.OK:
        outcome = Outcome.LAUNCH_ERROR
    ok = outcome is Outcome.OK
    return ForeignResult(
        operation=_operation(row),
        configuration=plain_name(row["Operation"]),
        parameters={name: row[name] for name in _CONFIGURES if row.get(name)},
        time_ns=milliseconds(row["Runtime"], "Runtime") if ok else None,
        statistic="mean",
        outcome=outcome,
        reason="" if ok else f"cutlass_profiler: {row['Disposition']}, {row['Status']}",
    )


def _operation(row: dict[str, str]) -> Operation:
    m, n, k = (integer(row[name], name) for name in "mnk")
    batch = integer(row.get("batch_count") or 1, "batch_count")
    alpha, beta = (factor(row, name, usual) for name, usual in _FACTORS.items())
    result = row.get("D") or row["C"]
    if beta and result.partition(":")[0] != row["C"].partition(":")[0]:
        raise RowError(f"C is {row['C']} and D {result}: they are of one format here")
    tensors = [_tensor(text) for text in (row["A"], row["B"], result)]
    (a, of_a), (b, of_b), (c, of_c) = tensors
    return product(
        (m, n, k, batch), (a, b, c), (of_a, of_b, of_c), row.get("accum", ""), alpha=alpha,
        beta=beta,
    )  # fmt: skip


_FACTORS: Final = {"alpha": 1.0, "beta": 0.0}


def _tensor(text: str) -> tuple[str, Layout]:
    """``f16:column``; names of eight bits begin with an ``f``: ``fe4m3``."""
    dtype, _, layout = text.partition(":")
    if layout not in _LAYOUTS:
        raise RowError(f"{text!r} has no layout row or column")
    return dtype.removeprefix("f") if dtype.startswith("fe") else dtype, _LAYOUTS[layout]


FORMAT = ResultFormat(
    name="cutlass_profiler",
    summary="tables of cutlass_profiler (CSV)",
    recognises=lambda text: _BEGINNING in text,
    read=_read,
)
