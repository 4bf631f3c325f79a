"""What bounds a kernel, according to its hardware counters: ordered gates, one rule per file."""
