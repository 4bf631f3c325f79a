"""Databases, CSV files and JSON documents of rocprofv3.

The CSV files of one process are one trace, which the file of the kernels represents.
"""

from __future__ import annotations

import re

from gemmetry.domain.opening import SQLITE_MAGIC
from gemmetry.formats.readers import TraceFormat, later, of_stream

KEY = "rocprofiler-sdk-tool"
"""The only key in the outermost object of a ``results.json``."""

_HEADER = re.compile(
    rb"(?=[^\r\n]*\b(?:Start_Timestamp|Counter_Name)\b)"
    rb"[^\r\n]*\b(?:Kernel_Name|Correlation_Id)\b[^\r\n]*\r?\n"
    rb"|[^\r\n]*\b(?:TotalDurationNs|Logical_Node_Id)\b[^\r\n]*\r?\n"
)
"""Columns of the tables of kernels and calls with times, counters, statistics and agents."""


_ROCM = "gemmetry.formats.rocm"
_COUNTERS = f"{_ROCM}.rocprofv3:read_counted"

FORMATS = (
    TraceFormat(
        name="rocpd database (SQLite)",
        suffix=".db",
        summary="rocprofv3's .db files (rocpd)",
        begins=lambda text: text.startswith(SQLITE_MAGIC),
        confirmed=later(f"{_ROCM}.rocprofv3:is_rocpd"),
        read=later(f"{_ROCM}.rocprofv3:read_rocpd"),
        counters=later(_COUNTERS, "db"),
        problem="it is a SQLite database that is damaged or has no tables of rocprofv3",
    ),
    TraceFormat(
        name="rocprofv3 table (CSV)",
        suffix=".csv",
        summary="rocprofv3's kernel_trace.csv",
        begins=_HEADER.match,
        read=later(f"{_ROCM}.rocprofv3:read_rocprofv3_csv"),
        counters=later(_COUNTERS, "csv"),
        problem="neither it nor a file of the same process next to it has kernels with their times",
        is_missed=later(f"{_ROCM}.tables:is_of_kernels"),
        leads=later(f"{_ROCM}.tables:has_kernels"),
        files=later(f"{_ROCM}.tables:files_of_process"),
    ),
    TraceFormat(
        name="rocprofv3 results (JSON)",
        suffix=".json",
        summary="rocprofv3's results.json",
        json_key=KEY,
        read=of_stream(later(f"{_ROCM}.rocprofv3:read_rocprofv3_json")),
        counters=later(_COUNTERS, "json"),
    ),
)
