"""Computes tables from the rows of trace files: what ran when, which GEMM it was, and which rank
waited for which.
"""

from __future__ import annotations

TRACE_SCHEMA_VERSION = 1
"""Version of the JSON documents about traces."""
