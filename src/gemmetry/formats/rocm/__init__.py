"""What rocprofv3 and rocpd write: CSV, JSON and SQLite, traces and counters."""
