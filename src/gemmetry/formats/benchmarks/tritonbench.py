"""Tables of tritonbench, from ``--csv --output`` or ``--dump-csv`` (tritonbench,
``tritonbench/utils/triton_op.py``, ``write_csv_to_file``).

The latency is the median. The table does not state formats and layouts.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gemmetry.domain.errors import Outcome
from gemmetry.formats.benchmarks import (
    ForeignFile,
    ForeignResult,
    ResultFormat,
    RowError,
    StatedOperation,
    milliseconds,
    plain_name,
)

_LATENCY: Final = "-latency"
_SHAPE: Final = re.compile(r"\(\s*(\d{1,18}(?:\s*,\s*\d{1,18}){2,3})\s*,?\s*\)")
"""``(M, N, K)`` or ``(B, M, N, K)``."""
_SPREAD: Final = re.compile(r"\s*\((?:±|\+-)[^()]*\)$")
"""What may follow a latency: ``0.012 (±1.20%)``."""
_SUMMARIES: Final = ("average", "hashes")
"""Rows that are not about a shape."""
_FALSE: Final = ("False", "false", "0", "0.0")
"""The accuracy of a kernel whose output differs from the baseline's."""


def _recognises(text: str) -> bool:
    header = text.partition("\n")[0].strip().split(";")
    return len(header) > 1 and any(name.endswith(_LATENCY) for name in header[1:])


def _read(path: Path, text: str, stated: StatedOperation) -> ForeignFile:
    found = ForeignFile()
    # Strict, so that a quote that is not closed does not swallow the rest of the file unnoticed.
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=";", strict=True)
    try:
        _read_rows(path, next(rows), rows, stated, found)
    except csv.Error as error:
        found.left_out(f"{path.name}:{rows.line_num}", f"{error}; the rows from here on are lost")
    return found


def _read_rows(
    path: Path, header: list[str], rows: Iterable[list[str]], stated: StatedOperation,
    found: ForeignFile,
) -> None:  # fmt: skip
    columns = [
        (place, name.removesuffix(_LATENCY))
        for place, name in enumerate(header)
        if place and name.endswith(_LATENCY)
    ]
    for number, cells in enumerate(rows, 2):
        if not cells or cells[0] in _SUMMARIES:
            continue
        for place, kernel in columns:
            try:
                found.results.append(_result(header, cells, place, kernel, stated))
            except RowError as error:
                found.left_out(f"{path.name}:{number}: {kernel}", error)


def _result(
    header: list[str], cells: list[str], place: int, kernel: str, stated: StatedOperation
) -> ForeignResult:
    match = _SHAPE.fullmatch(cells[0].strip())
    if match is None:
        raise RowError(f"{cells[0]!r} is not a shape (M, N, K)")
    if len(cells) != len(header):
        raise RowError(f"it has {len(cells)} cells, and the header {len(header)}")
    *batch, m, n, k = map(int, match[1].split(","))
    operation = stated.at(m, n, k, *batch)
    cell = _SPREAD.sub("", cells[place].strip())
    own = {
        name.rpartition("-")[2]: one.strip()
        for name, one in zip(header[1:], cells[1:], strict=True)
        if name.rpartition("-")[0] == kernel
    }
    is_wrong = own.pop("accuracy", "") in _FALSE
    # A message takes the place of the kernel's first metric, and its others are empty.
    messages = [one for one in own.values() if one and not _is_number(_SPREAD.sub("", one))]
    time_ns, outcome, reason = None, Outcome.OK, ""
    if messages and (not cell or cell in messages):
        is_oom = "OOM" in messages[0].upper()
        outcome = Outcome.OUT_OF_MEMORY if is_oom else Outcome.LAUNCH_ERROR
        reason = f"tritonbench: {messages[0]}"
    elif is_wrong:
        outcome, reason = Outcome.WRONG, "tritonbench: the accuracy is False"
    elif not cell:
        raise RowError("it has no latency")
    else:
        time_ns = milliseconds(cell, "the latency")
    return ForeignResult(
        operation=operation, configuration=plain_name(kernel), time_ns=time_ns, outcome=outcome,
        reason=reason,
    )  # fmt: skip


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


FORMAT = ResultFormat(
    name="tritonbench",
    summary="tables of tritonbench (CSV)",
    recognises=_recognises,
    read=_read,
)
