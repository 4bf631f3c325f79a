"""Rows of trace files -> tables: what ran when, which GEMM it was, who waited for whom."""

TRACE_SCHEMA_VERSION = 1
"""Of the JSON documents about traces."""
