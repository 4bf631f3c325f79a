"""Comparison of reports of hardware counters."""
