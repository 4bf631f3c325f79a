"""Hardware counters in Python: collecting, reading, diagnosing and comparing."""
