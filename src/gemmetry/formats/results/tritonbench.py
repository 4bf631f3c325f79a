"""Tables of tritonbench, from ``--csv --output`` or ``--dump-csv`` (tritonbench,
``tritonbench/utils/triton_op.py``, ``write_csv_to_file``).

The latency is the median. The table does not state formats and layouts.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Final

from gemmetry.domain.outcome import Outcome
from gemmetry.formats.foreign_results import (
    ForeignFile,
    ForeignResult,
    RowError,
    StatedOperation,
    milliseconds,
    plain_name,
)
from gemmetry.formats.results import ResultFormat

_LATENCY: Final = "-latency"
_SHAPE: Final = re.compile(r"\(\s*(\d{1,18}(?:\s*,\s*\d{1,18}){2,3})\s*,?\s*\)")
"""``(M, N, K)`` or ``(B, M, N, K)``."""
_SUMMARIES: Final = ("average", "hashes")
"""Rows that are not about a shape."""


def _recognises(text: str) -> bool:
    header = text.partition("\n")[0].strip().split(";")
    return len(header) > 1 and any(name.endswith(_LATENCY) for name in header[1:])


def _read(path: Path, text: str, stated: StatedOperation) -> ForeignFile:
    found = ForeignFile()
    header, *rows = csv.reader(text.splitlines(), delimiter=";")
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
    return found


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
    cell, reason = cells[place].strip(), ""
    time_ns = None
    # A message takes the place of the kernel's first metric, and its others are empty.
    own = [cells[i].strip() for i, name in enumerate(header) if i and name.startswith(f"{kernel}-")]
    messages = [one for one in own if one and not _is_number(one)]
    if messages and (not cell or cell in messages):
        reason = f"tritonbench: {messages[0]}"
    elif not cell:
        raise RowError("it has no latency")
    else:
        time_ns = milliseconds(cell, "the latency")
    return ForeignResult(
        operation=operation,
        configuration=plain_name(kernel),
        time_ns=time_ns,
        outcome=_outcome(reason) if reason else Outcome.OK,
        reason=reason,
    )


def _outcome(reason: str) -> Outcome:
    return Outcome.OUT_OF_MEMORY if "OOM" in reason.upper() else Outcome.LAUNCH_ERROR


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
