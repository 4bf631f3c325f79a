"""Readers of rocprofv3 and rocpd files: traces and counters as CSV, JSON and SQLite."""

from __future__ import annotations
