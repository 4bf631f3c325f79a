"""CSV files of rocprofv3: the files of one process are one trace, which the file of the kernels
represents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.formats.readers import TraceFormat

if TYPE_CHECKING:
    from gemmetry.formats.events import TraceRows


_HEADER = re.compile(
    rb"(?=[^\r\n]*\b(?:Start_Timestamp|Counter_Name)\b)"
    rb"[^\r\n]*\b(?:Kernel_Name|Correlation_Id)\b[^\r\n]*\r?\n"
    rb"|[^\r\n]*\b(?:TotalDurationNs|Logical_Node_Id)\b[^\r\n]*\r?\n"
)
"""Columns of the tables of kernels and calls with times, counters, statistics and agents."""


def _read(path: Path) -> TraceRows | None:
    from gemmetry.formats.rocm.rocprofv3 import read_rocprofv3_csv

    return read_rocprofv3_csv(path)


def _leads(path: Path) -> bool:
    from gemmetry.formats.rocm.rocprofv3 import kernel_tables

    return path in kernel_tables(path)


def _is_of_kernels(name: str) -> bool:
    from gemmetry.formats.rocm.rocprofv3 import table_of

    found = table_of(name)
    return found is not None and found[1] in ("kernel_trace", "counter_collection")


def _files(path: Path) -> Sequence[Path]:
    from gemmetry.formats.rocm.rocprofv3 import siblings

    tables = siblings(path)
    return [tables[table] for table in sorted(tables)] or [path]


FORMAT = TraceFormat(
    name="rocprofv3 table (CSV)",
    suffix=".csv",
    summary="rocprofv3's kernel_trace.csv",
    begins=_HEADER.match,
    read=_read,
    problem="neither it nor a file of the same process next to it has kernels with their times",
    is_missed=_is_of_kernels,
    leads=_leads,
    files=_files,
)
