"""Readers of rocprofv3 and rocpd files: traces and counters as CSV, JSON and SQLite."""
